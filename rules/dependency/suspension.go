package dependency

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
)

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
func (g *Graph) Suspending(object Ref) (policy, waits string) {
	for _, m := range g.producersOf(object) {
		p, t := m.policy, &m.policy.Templates[m.template]
		if t.Suspended() && p.inEffect() {
			return p.Namespace + "/" + p.Name, p.Waits(t.Name)
		}
	}
	for _, m := range g.producersOf(object.any()) {
		if p := m.policy; p.inEffect() {
			return p.Namespace + "/" + p.Name, p.Waits("")
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
