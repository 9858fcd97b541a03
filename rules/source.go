package rules

import "github.com/opgate/opgate/rules/constraint"

// PolicyRef names an object that may refuse a write: an OperatorPolicy, or a Constraint, which has no namespace.
type PolicyRef struct{ Kind, Namespace, Name string }

// The kinds that a PolicyRef may have.
const (
	KindOperatorPolicy = "OperatorPolicy"
	KindConstraint     = "Constraint"
)

// String names the object as reasons do: "OperatorPolicy policies/etcd", "Constraint curated".
func (g PolicyRef) String() string {
	if g.Namespace == "" {
		return g.Kind + " " + g.Name
	}
	return g.Kind + " " + g.Namespace + "/" + g.Name
}

func (p *Policy) ref() PolicyRef {
	return PolicyRef{Kind: KindOperatorPolicy, Namespace: p.Namespace, Name: p.Name}
}

func constraintRef(d *constraint.Definition) PolicyRef {
	return PolicyRef{Kind: KindConstraint, Name: d.Name}
}

// sources lists all that may refuse something in a namespace: its enforcing policies, and the Constraints that apply.
func (n *Namespace) sources() []PolicyRef {
	var all []PolicyRef
	for _, p := range n.enforcing() {
		all = append(all, p.ref())
	}
	for _, d := range n.Constraints().Applicable(n.Facts()) {
		all = append(all, constraintRef(d))
	}
	return all
}

// judged reports whether anything is said of plans in this namespace, warnings included.
func (n *Namespace) judged() bool { return n.governed() || !n.Constraints().Empty() }

// constrained reports whether a Constraint could refuse an operator in this namespace. One that holds here whatever the
// operator is, such as one about namespaces of tenants in another namespace, does not count.
func (n *Namespace) constrained() bool { return n.Constraints().Applies(n.Facts()) }

// mayRefuse reports whether anything may be refused in this namespace.
func (n *Namespace) mayRefuse() bool { return len(n.enforcing()) > 0 || n.constrained() }

// recordForNamespace records a finding that is no single source's: it refuses where the namespace has an enforcing
// policy or a Constraint that applies, in the name of the first of these, and warns where policies only inform.
func recordForNamespace(v *Verdict, ns *Namespace, id RuleID, f finding) {
	if enforcing := ns.enforcing(); len(enforcing) > 0 {
		v.record(id, enforcing[0], f)
	} else if source, applies := ns.firstApplicable(); applies {
		v.recordAs(id, source, true, f)
	} else if ns.governed() {
		v.record(id, ns.policies[0], f)
	}
}
