package state

import (
	"slices"

	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/verdict"
)

// ConstraintRef returns a Constraint as the source of a reason.
func ConstraintRef(d *constraint.Definition) verdict.PolicyRef {
	return verdict.PolicyRef{Kind: verdict.KindConstraint, Name: d.Name}
}

// Sources returns all objects that may refuse in a namespace: its enforcing policies, and the Constraints that apply.
func (n *Namespace) Sources() []verdict.PolicyRef {
	var all []verdict.PolicyRef
	for _, p := range n.Enforcing() {
		all = append(all, p.Ref())
	}
	for _, d := range n.Constraints().Applicable(n.ForConstraints()) {
		all = append(all, ConstraintRef(d))
	}
	return all
}

// Judged reports whether plans in this namespace are judged, if only with warnings.
func (n *Namespace) Judged() bool { return n.Governed() || !n.Constraints().Empty() }

// Protected reports whether a Constraint restricts deletions, in every namespace.
func (n *Namespace) Protected() bool {
	return slices.ContainsFunc(n.Constraints().Definitions(),
		func(d *constraint.Definition) bool { return d.Deletion != nil })
}

// Constrained reports whether a Constraint could refuse an operator in this namespace. One that is satisfied here by
// any operator, such as one about namespaces of tenants in another namespace, does not count.
func (n *Namespace) Constrained() bool { return n.Constraints().Applies(n.ForConstraints()) }

// MayRefuse reports whether anything may be refused in this namespace.
func (n *Namespace) MayRefuse() bool { return len(n.Enforcing()) > 0 || n.Constrained() }

// RecordForNamespace records a finding without a single source: it refuses if the namespace has an enforcing policy or
// a Constraint that applies, in the name of the first of these, and warns if policies only inform.
func RecordForNamespace(v *verdict.Verdict, ns *Namespace, id verdict.RuleID, f verdict.Finding) {
	if enforcing := ns.Enforcing(); len(enforcing) > 0 {
		enforcing[0].Record(v, id, f)
	} else if source, applies := ns.firstApplicable(); applies {
		v.Record(id, source, true, f)
	} else if ns.Governed() {
		ns.policies[0].Record(v, id, f)
	}
}

// firstApplicable returns the first Constraint that may refuse something here.
func (n *Namespace) firstApplicable() (source verdict.PolicyRef, applies bool) {
	applicable := n.Constraints().Applicable(n.ForConstraints())
	if len(applicable) == 0 {
		return verdict.PolicyRef{}, false
	}
	return ConstraintRef(applicable[0]), true
}
