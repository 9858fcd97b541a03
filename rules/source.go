package rules

import (
	corev1 "k8s.io/api/core/v1"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/constraint"
)

// PolicyRef names an object that may refuse a write: an OperatorPolicy, or a Constraint, which has no namespace.
type PolicyRef struct{ Kind, Namespace, Name string }

// The kinds that a PolicyRef may have.
const (
	KindOperatorPolicy = "OperatorPolicy"
	KindConstraint     = "Constraint"
)

// String returns the object's name as used in reasons: "OperatorPolicy policies/etcd", "Constraint curated".
func (g PolicyRef) String() string {
	if g.Namespace == "" {
		return g.Kind + " " + g.Name
	}
	return g.Kind + " " + g.Namespace + "/" + g.Name
}

// Reference returns the object as the API refers to it, nil for none.
func (g PolicyRef) Reference() *corev1.ObjectReference {
	switch g.Kind {
	case KindOperatorPolicy:
		return &corev1.ObjectReference{APIVersion: policyv1beta2.GroupVersion.String(), Kind: g.Kind, Namespace: g.Namespace, Name: g.Name}
	case KindConstraint:
		return &corev1.ObjectReference{APIVersion: constraintv1.GroupVersion.String(), Kind: g.Kind, Name: g.Name}
	}
	return nil
}

func (p *OperatorPolicy) ref() PolicyRef {
	return PolicyRef{Kind: KindOperatorPolicy, Namespace: p.Namespace, Name: p.Name}
}

func constraintRef(d *constraint.Definition) PolicyRef {
	return PolicyRef{Kind: KindConstraint, Name: d.Name}
}

// sources returns all objects that may refuse in a namespace: its enforcing policies, and the Constraints that apply.
func (n *Namespace) sources() []PolicyRef {
	var all []PolicyRef
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
func recordForNamespace(v *Verdict, ns *Namespace, id RuleID, f finding) {
	if enforcing := ns.enforcing(); len(enforcing) > 0 {
		v.record(id, enforcing[0], f)
	} else if source, applies := ns.firstApplicable(); applies {
		v.recordAs(id, source, true, f)
	} else if ns.governed() {
		v.record(id, ns.policies[0], f)
	}
}
