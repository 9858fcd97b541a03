package dependency

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/internal/text"
)

const (
	// maxPendingNames bounds the dependencies that a message names.
	maxPendingNames = 5
	// maxPending bounds the dependencies that a status lists, maxPendingTemplates the templates that each of them
	// names.
	maxPending          = 20
	maxPendingTemplates = 5
)

// PendingText returns the message for a waiting template: "Dependencies were not satisfied: 1 is still pending (Policy
// shop/db: WrongState, it is NonCompliant, want Compliant)". It ends with the cycle, if there is one. Met
// results are left out.
func PendingText(results []Result, cycle []Ref, ignored bool) string {
	pending := unmet(results)
	slices.SortStableFunc(pending, func(a, b Result) int { return a.Compare(b.Ref) })
	names := make([]string, len(pending))
	for i := range pending {
		names[i] = pending[i].String() + ": " + pending[i].says()
	}
	verb := "are"
	if len(pending) == 1 {
		verb = "is"
	}
	s := fmt.Sprintf("Dependencies were not satisfied: %d %s still pending (%s)", len(pending), verb,
		text.Join(names, maxPendingNames))
	if len(cycle) > 0 {
		s += "; they wait for one another: " + ChainText(cycle)
	}
	if ignored {
		s += " but ignorePending is true"
	}
	return s
}

// says returns the reason and its explanation.
func (f *Result) says() string {
	if f.Reason == NotFound {
		return string(f.Reason)
	}
	return strings.TrimSuffix(string(f.Reason)+", "+f.Text, ", ")
}

// PendingRef returns the object of a pending dependency in a status.
func PendingRef(d *policyv1.DependencyStatus) Ref {
	r := Ref{Group: PolicyGroup, Kind: d.Kind, Namespace: d.Namespace, Name: d.Name}
	if d.APIVersion != "" {
		gv, _ := schema.ParseGroupVersion(d.APIVersion)
		r.Group = gv.Group
	}
	return r
}

// wanted identifies one entry of the list: two templates may want the same object in different states.
type wanted struct {
	Ref
	want State
}

// listPending returns the list for the status, one entry per object and state, and the total number of entries. For an
// object that has not been read yet, it repeats the previous entry.
func listPending(outcomes []TemplateOutcome, before []policyv1.DependencyStatus) ([]policyv1.DependencyStatus, int) {
	said := map[wanted]*policyv1.DependencyStatus{}
	for i := range before {
		said[wanted{PendingRef(&before[i]), State(before[i].Compliance)}] = &before[i]
	}
	lines := map[wanted]*policyv1.DependencyStatus{}
	var order []wanted
	for i := range outcomes {
		for j := range outcomes[i].Unmet {
			f := &outcomes[i].Unmet[j]
			k := wanted{f.Ref, f.Want}
			line := lines[k]
			if line == nil {
				line = lineOf(f, said[k])
				lines[k], order = line, append(order, k)
			}
			if len(line.Templates) < maxPendingTemplates && !slices.Contains(line.Templates, outcomes[i].Template) {
				line.Templates = append(line.Templates, outcomes[i].Template)
			}
		}
	}
	slices.SortFunc(order, func(a, b wanted) int { return cmp.Or(a.Compare(b.Ref), cmp.Compare(a.want, b.want)) })
	var list []policyv1.DependencyStatus
	for _, k := range order[:min(len(order), maxPending)] {
		list = append(list, *lines[k])
	}
	return list, len(order)
}

func lineOf(f *Result, before *policyv1.DependencyStatus) *policyv1.DependencyStatus {
	line := &policyv1.DependencyStatus{
		Kind: f.Kind, Namespace: f.Namespace, Name: f.Name, Compliance: policyv1.ComplianceState(f.Want),
		Reason: string(f.Reason), Message: f.Text,
	}
	if f.Version != "" {
		line.APIVersion = schema.GroupVersion{Group: f.Group, Version: f.Version}.String()
	}
	if known(f.State) {
		line.State = policyv1.ComplianceState(f.State)
	}
	if f.Unread && before != nil {
		line.Reason, line.Message, line.State = before.Reason, before.Message, before.State
	}
	return line
}

// maxWaits bounds what PendingOn names.
const maxWaits = 3

// PendingOn returns what a template waits for, according to the status of the Policy: "Policy shop/app waits for Policy
// shop/db (Pending, want Compliant)". An empty name means any template.
func (p *Policy) PendingOn(template string) string {
	if p.Unreadable {
		return p.Ref().String() + " cannot be read"
	}
	var names []string
	for i := range p.PendingDependencies {
		d := &p.PendingDependencies[i]
		if template != "" && len(d.Templates) > 0 && len(d.Templates) < maxPendingTemplates && // not truncated
			!slices.Contains(d.Templates, template) {
			continue
		}
		name := PendingRef(d).String()
		switch {
		case Reason(d.Reason) == WrongState && d.State != "":
			name += " (" + text.Name(string(d.State)) + ", want " + text.Name(string(d.Compliance)) + ")"
		case d.Reason != "":
			name += " (" + text.Name(d.Reason) + ")"
		}
		names = append(names, name)
	}
	if len(names) == 0 { // not evaluated yet
		names = append(names, "its dependencies")
	}
	return p.Ref().String() + " waits for " + text.Join(names, maxWaits)
}

// The values of status.details[].dependencies. A value of satisfied ends with a checksum of the dependencies, so that
// it does not count once these are edited.
const (
	unsatisfied = "Unsatisfied"
	satisfied   = "Satisfied"
)

// readMet sets Met and Reported of the templates that may be suspended.
func (p *Policy) readMet(own dependencies, extras []dependencies, details []*policyv1.DetailsPerTemplate) {
	reported := make(map[string]string, len(details))
	for _, d := range details {
		if d != nil {
			reported[d.TemplateMeta.Name] = d.Dependencies
		}
	}
	shared := uint64(0)
	for i := range p.Templates {
		if t := &p.Templates[i]; t.Suspendable && len(own.list)+len(extras[i].list) > 0 {
			shared = cmp.Or(shared, own.checksum())
			t.Met = fmt.Sprintf("%s %016x", satisfied, shared^extras[i].checksum()*31)
			t.Reported = reported[t.Name]
		}
	}
}

// checksum is of what is waited for, as it is written: the union is much longer.
func (d *dependencies) checksum() uint64 {
	sum := fnv.New64a()
	for _, one := range d.list {
		fmt.Fprintf(sum, "%q %q %q %q %q %q\n", one.Group, one.Version, one.Kind, one.Namespace, one.Name, one.Want)
	}
	return sum.Sum64()
}

// Suspended reports whether the status does not show that the present dependencies are met: nothing may be approved
// then that the object is about, also before the first evaluation.
func (t *Template) Suspended() bool { return t.Reported != t.Met }

// WasSuspended reports whether the template was waiting when it was evaluated last.
func (t *Template) WasSuspended() bool { return t.Met != "" && t.Reported == unsatisfied }

// inEffect reports whether the templates of the Policy count.
func (p *Policy) inEffect() bool { return !p.Deleting && !p.Disabled && !p.Excluded }

// Suspending returns the Policy that suspends an OperatorPolicy or a Constraint, as namespace/name, and a sentence on
// what it waits for; both are empty if none does. The Policy decides, by its templates and its status. Labels,
// annotations and owner references of the object do not count, since others may remove them.
func (g *Graph) Suspending(object Ref) (policy, because string) {
	for _, m := range g.producersOf(object) {
		p, t := m.policy, &m.policy.Templates[m.template]
		if t.Suspended() && p.inEffect() {
			return p.Namespace + "/" + p.Name, p.PendingOn(t.Name)
		}
	}
	for _, m := range g.producersOf(object.any()) {
		if p := m.policy; p.inEffect() {
			return p.Namespace + "/" + p.Name, p.PendingOn("")
		}
	}
	return "", ""
}

// CreatedBy returns the Policy, as namespace/name, that creates an object again where it is missing; empty if none
// does.
func (g *Graph) CreatedBy(object Ref) string {
	for _, m := range g.producersOf(object) {
		p, t := m.policy, &m.policy.Templates[m.template]
		if t.Fault == "" && p.inEffect() {
			return p.Namespace + "/" + p.Name
		}
	}
	return ""
}

// dependenciesAfter returns status.details[].dependencies after a decision. A template error changes nothing, and
// neither does an object of another owner: a Policy must not suspend what it does not own.
func (in *TemplateInput) dependenciesAfter() string {
	t := &in.Template
	met, decided := AllMet(in.Results)
	switch {
	case t.Met == "":
		return ""
	case t.Fault != "", in.KindFault != "", met && t.HubError != "", !met && in.Live != nil && !in.Live.Ours:
		if t.WasSuspended() {
			return unsatisfied
		}
		return t.Met
	case met:
		return t.Met
	case !decided && !t.Suspended():
		return t.Met
	}
	return unsatisfied
}

// anyName is in place of the name in a reference to every object of a kind in a namespace.
const anyName = "*"

// Unreadable returns what a Policy that does not decode may suspend: the objects of its templates and, if
// not all of these can be read, every OperatorPolicy of its namespace. A Constraint of a template that cannot be read
// is in force as it is.
func Unreadable(namespace, name string, raw []byte) *Policy {
	var parts struct {
		Spec struct {
			Templates []struct {
				Definition runtime.RawExtension `json:"objectDefinition"`
			} `json:"policy-templates"`
		} `json:"spec"`
	}
	written := &policyv1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &parts)
	for _, t := range parts.Spec.Templates {
		template := &policyv1.PolicyTemplate{ObjectDefinition: t.Definition}
		written.Spec.PolicyTemplates = append(written.Spec.PolicyTemplates, template)
	}
	p := Read(written)
	p.Unreadable, p.HidesTemplates = true, err != nil || len(p.Templates) == 0
	for i := range p.Templates {
		t := &p.Templates[i]
		p.HidesTemplates = p.HidesTemplates || !t.Readable
		if t.Suspendable {
			t.Met = satisfied // which no status reports
		}
	}
	return p
}

// any returns the reference to every object of the kind in the namespace; the zero value for another kind than
// OperatorPolicy.
func (r Ref) any() Ref {
	if !strings.HasSuffix(r.Kind, "OperatorPolicy") {
		return Ref{}
	}
	return OperatorPolicyRef(r.Namespace, anyName)
}
