package rules

import (
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/verdict"
)

func (p *OperatorPolicy) ref() verdict.PolicyRef {
	return verdict.PolicyRef{Kind: verdict.KindOperatorPolicy, Namespace: p.Namespace, Name: p.Name}
}

// record records a finding of a policy in a verdict.
func (p *OperatorPolicy) record(v *verdict.Verdict, id verdict.RuleID, f verdict.Finding) {
	if !f.Silent() {
		v.Record(id, p.ref(), p.Enforced, f)
	}
}

func constraintRef(d *constraint.Definition) verdict.PolicyRef {
	return verdict.PolicyRef{Kind: verdict.KindConstraint, Name: d.Name}
}

// sources returns all objects that may refuse in a namespace: its enforcing policies, and the Constraints that apply.
func (n *Namespace) sources() []verdict.PolicyRef {
	var all []verdict.PolicyRef
	for _, p := range n.enforcing() {
		all = append(all, p.ref())
	}
	for _, d := range n.Constraints().Applicable(n.ForConstraints()) {
		all = append(all, constraintRef(d))
	}
	return all
}

// judged reports whether plans in this namespace are judged, if only with warnings.
func (n *Namespace) judged() bool { return n.governed() || !n.Constraints().Empty() }

// constrained reports whether a Constraint could refuse an operator in this namespace. One that is satisfied here by
// any operator, such as one about namespaces of tenants in another namespace, does not count.
func (n *Namespace) constrained() bool { return n.Constraints().Applies(n.ForConstraints()) }

// mayRefuse reports whether anything may be refused in this namespace.
func (n *Namespace) mayRefuse() bool { return len(n.enforcing()) > 0 || n.constrained() }

// recordForNamespace records a finding without a single source: it refuses if the namespace has an enforcing policy or
// a Constraint that applies, in the name of the first of these, and warns if policies only inform.
func recordForNamespace(v *verdict.Verdict, ns *Namespace, id verdict.RuleID, f verdict.Finding) {
	if enforcing := ns.enforcing(); len(enforcing) > 0 {
		enforcing[0].record(v, id, f)
	} else if source, applies := ns.firstApplicable(); applies {
		v.Record(id, source, true, f)
	} else if ns.governed() {
		ns.policies[0].record(v, id, f)
	}
}
