package rules

import "github.com/opgate/opgate/rules/constraint"

// Guard names an object that may refuse a write: an OperatorPolicy, or a Constraint, which has no namespace.
type Guard struct{ Kind, Namespace, Name string }

// The kinds of guards.
const (
	GuardPolicy     = "OperatorPolicy"
	GuardConstraint = "Constraint"
)

// String names the guard as reasons do: "OperatorPolicy policies/etcd", "Constraint curated".
func (g Guard) String() string {
	if g.Namespace == "" {
		return g.Kind + " " + g.Name
	}
	return g.Kind + " " + g.Namespace + "/" + g.Name
}

func (p *Policy) guard() Guard {
	return Guard{Kind: GuardPolicy, Namespace: p.Namespace, Name: p.Name}
}

func constraintGuard(d *constraint.Definition) Guard {
	return Guard{Kind: GuardConstraint, Name: d.Name}
}

// guards lists all that may refuse something in a namespace: its enforcing policies and, where Constraints bind,
// these.
func (n *Namespace) guards() []Guard {
	var all []Guard
	for _, p := range n.enforcing() {
		all = append(all, p.guard())
	}
	for _, d := range n.Constraints().Binding(n.Facts()) {
		all = append(all, constraintGuard(d))
	}
	return all
}

// judged tells whether anything is said of plans in this namespace, be it a warning.
func (n *Namespace) judged() bool { return n.governed() || !n.Constraints().Empty() }

// bound tells whether a Constraint could refuse an operator in this namespace. One that holds here whatever the
// operator is, such as one about namespaces of tenants in a namespace of nobody, does not count.
func (n *Namespace) bound() bool { return n.Constraints().Binds(n.Facts()) }

// guarded tells whether anything may be refused in this namespace.
func (n *Namespace) guarded() bool { return len(n.enforcing()) > 0 || n.bound() }

// recordForNamespace records a finding that is no single guard's: it refuses where the namespace has an enforcing
// policy or a Constraint that binds, in the name of the first of these, and warns where policies only inform.
func recordForNamespace(v *Verdict, ns *Namespace, id RuleID, f finding) {
	if enforcing := ns.enforcing(); len(enforcing) > 0 {
		v.record(id, enforcing[0], f)
	} else if guard, bound := ns.bindingGuard(); bound {
		v.recordAs(id, guard, true, f)
	} else if ns.governed() {
		v.record(id, ns.policies[0], f)
	}
}
