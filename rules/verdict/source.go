package verdict

import (
	corev1 "k8s.io/api/core/v1"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
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
		return &corev1.ObjectReference{APIVersion: policyv1beta2.GroupVersion.String(), Kind: g.Kind,
			Namespace: g.Namespace, Name: g.Name}
	case KindConstraint:
		return &corev1.ObjectReference{APIVersion: constraintv1.GroupVersion.String(), Kind: g.Kind, Name: g.Name}
	}
	return nil
}
