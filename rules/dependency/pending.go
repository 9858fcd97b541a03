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

// readPending reads the pending dependencies of a status.
func readPending(list []policyv1.DependencyStatus) []PendingDependency {
	list = list[:min(len(list), maxPending)]
	pending := make([]PendingDependency, 0, len(list))
	for i := range list {
		d := &list[i]
		w := PendingDependency{
			Ref:    Ref{Group: PolicyGroup, Kind: d.Kind, Namespace: d.Namespace, Name: d.Name},
			Reason: Reason(d.Reason), Want: State(d.Compliance), State: State(d.State), Templates: d.Templates,
		}
		if d.APIVersion != "" {
			gv, _ := schema.ParseGroupVersion(d.APIVersion)
			w.Ref.Group = gv.Group
		}
		pending = append(pending, w)
	}
	return pending
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
	for i, w := range readPending(before) {
		said[wanted{w.Ref, w.Want}] = &before[i]
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

// Chain describes what a Policy waits for, and what that waits for, according to the statuses: "Policy shop/app waits
// for Policy shop/db (Pending, want Compliant), which waits for ConfigurationPolicy shop/x (NotFound)". Template
// is the name of the template to describe, empty for any.
func (g *Graph) Chain(policy Ref, template string) string {
	if p := g.Policy(policy.Namespace, policy.Name); p != nil && p.Unreadable {
		return p.cannotBeRead()
	}
	s := policy.String() + " waits for "
	wait := g.next(policy, template, nil)
	if wait == nil {
		return s + "its dependencies"
	}
	seen := map[Ref]bool{policy: true}
	for steps := 1; ; steps++ {
		seen[wait.Ref] = true
		s += wait.String()
		following := g.next(wait.Ref, "", seen)
		if following == nil {
			return s
		}
		if steps == maxSteps {
			return s + ", which waits for more"
		}
		s += ", which waits for "
		wait = following
	}
}

// String returns the object that is waited for and why it is not met.
func (w *PendingDependency) String() string {
	s := w.Ref.String()
	switch {
	case w.Reason == WrongState && w.State != Unknown:
		return s + " (" + text.Name(string(w.State)) + ", want " + text.Name(string(w.Want)) + ")"
	case w.Reason != "":
		return s + " (" + text.Name(string(w.Reason)) + ")"
	}
	return s
}

// next returns what an object waits for: the first that itself waits for something, else the first. Objects in seen are
// skipped.
func (g *Graph) next(from Ref, template string, seen map[Ref]bool) *PendingDependency {
	var first *PendingDependency
	for _, w := range g.pendingOf(from, template) {
		if seen[w.Ref] {
			continue
		}
		if first == nil {
			first = w
		}
		if len(g.pendingOf(w.Ref, "")) > 0 {
			return w
		}
	}
	return first
}

// pendingOf returns what an object waits for according to the statuses: for a Policy its own, for the object of a
// template those of the template. A PolicySet waits for its members that are not Compliant.
func (g *Graph) pendingOf(of Ref, template string) []*PendingDependency {
	switch {
	case of.IsPolicy():
		return g.Policy(of.Namespace, of.Name).pendingOf(template)
	case of.IsSet():
		s := g.Set(of.Namespace, of.Name)
		if s == nil {
			return nil
		}
		var list []*PendingDependency
		for _, name := range s.Policies {
			switch p := g.Policy(s.Namespace, name); {
			case p == nil:
				list = append(list, &PendingDependency{Ref: PolicyRef(s.Namespace, name), Reason: NotFound,
					Want: Compliant})
			case p.Disabled, p.State == Compliant:
			case p.State == Unknown:
				list = append(list, &PendingDependency{Ref: p.Ref(), Reason: NoStatus, Want: Compliant})
			default:
				list = append(list, &PendingDependency{Ref: p.Ref(), Reason: WrongState, Want: Compliant,
					State: p.State})
			}
		}
		return list
	}
	for _, m := range g.producersOf(of) {
		if list := m.policy.pendingOf(m.policy.Templates[m.template].Name); len(list) > 0 {
			return list
		}
	}
	return nil
}

// pendingOf returns what a template waits for; an empty name means any template. A full list of templates may have been
// truncated, so it is treated as if it contained this one.
func (p *Policy) pendingOf(template string) []*PendingDependency {
	if p == nil {
		return nil
	}
	var list []*PendingDependency
	for i := range p.PendingDependencies {
		w := &p.PendingDependencies[i]
		if template == "" || len(w.Templates) == 0 || len(w.Templates) >= maxPendingTemplates ||
			slices.Contains(w.Templates, template) {
			list = append(list, w)
		}
	}
	return list
}
