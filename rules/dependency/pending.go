package dependency

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

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

// maxWaits bounds what Waits names.
const maxWaits = 3

// Waits returns what a template waits for, according to the status of the Policy: "Policy shop/app waits for Policy
// shop/db (Pending, want Compliant)". An empty name means any template.
func (p *Policy) Waits(template string) string {
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
