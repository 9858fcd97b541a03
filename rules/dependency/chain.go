package dependency

import (
	"slices"

	"github.com/opgate/opgate/internal/text"
)

// Chain describes what a Policy waits for, and what that waits for, according to the statuses: "Policy shop/app waits
// for Policy shop/db (Pending, Compliant is wanted), which waits for ConfigurationPolicy shop/x (NotFound)". Template
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
		return s + " (" + text.Name(string(w.State)) + ", " + text.Name(string(w.Want)) + " is wanted)"
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
	for _, m := range g.producers(of) {
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
