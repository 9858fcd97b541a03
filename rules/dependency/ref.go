package dependency

import (
	"cmp"
	"strings"

	"github.com/opgate/opgate/internal/text"
)

// Ref names one object, regardless of the API version. Namespace is empty for kinds that are known to be
// cluster-scoped.
type Ref struct{ Group, Kind, Namespace, Name string }

// String returns "Policy shop/db", "Constraint curated", and for groups other than Opgate's own "Widget.example.com
// shop/w".
func (r Ref) String() string {
	kind := r.Kind
	if r.Group != PolicyGroup && r.Group != ConstraintGroup && r.Group != "" {
		kind += "." + r.Group
	}
	if r.Namespace == "" {
		return text.Name(kind) + " " + text.Name(r.Name)
	}
	return text.Name(kind) + " " + text.Name(r.Namespace) + "/" + text.Name(r.Name)
}

// Compare orders by the printed kind, then by namespace and name.
func (r Ref) Compare(other Ref) int {
	return cmp.Or(strings.Compare(r.Kind, other.Kind), strings.Compare(r.Group, other.Group),
		strings.Compare(r.Namespace, other.Namespace), strings.Compare(r.Name, other.Name))
}

// PolicyRef returns the Ref of a Policy.
func PolicyRef(namespace, name string) Ref {
	return Ref{Group: PolicyGroup, Kind: KindPolicy, Namespace: namespace, Name: name}
}

// OperatorPolicyRef returns the Ref of an OperatorPolicy.
func OperatorPolicyRef(namespace, name string) Ref {
	return Ref{Group: PolicyGroup, Kind: KindOperatorPolicy, Namespace: namespace, Name: name}
}

// ConstraintRef returns the Ref of a Constraint.
func ConstraintRef(name string) Ref {
	return Ref{Group: ConstraintGroup, Kind: KindConstraint, Name: name}
}

// SetRef returns the Ref of a PolicySet.
func SetRef(namespace, name string) Ref {
	return Ref{Group: PolicyGroup, Kind: KindPolicySet, Namespace: namespace, Name: name}
}

// IsPolicy reports whether the object is a Policy.
func (r Ref) IsPolicy() bool { return r.Group == PolicyGroup && r.Kind == KindPolicy }

// IsSet reports whether the object is a PolicySet.
func (r Ref) IsSet() bool { return r.Group == PolicyGroup && r.Kind == KindPolicySet }

// Suspendable reports whether the object restricts what may be installed: it is suspended where others are deleted.
func (r Ref) Suspendable() bool {
	return r.Group == PolicyGroup && r.Kind == KindOperatorPolicy || r.Group == ConstraintGroup &&
		r.Kind == KindConstraint
}

// Gatekeeper reports whether the kind is one of Gatekeeper's.
func (r Ref) Gatekeeper() bool {
	return r.Group == GatekeeperConstraintGroup || r.Group == GatekeeperTemplateGroup &&
		r.Kind == KindConstraintTemplate
}

// clusterScoped reports whether the kind is known to be cluster-scoped. The scope of other kinds only the cluster
// knows.
func (r Ref) clusterScoped() bool {
	return r.Group == ConstraintGroup && r.Kind == KindConstraint || r.Gatekeeper()
}

// State is a compliance state as written in a status. Empty is unknown. Objects of other controllers may have other
// states than these three.
type State string

// The states that Opgate itself sets.
const (
	Compliant    State = "Compliant"
	NonCompliant State = "NonCompliant"
	Pending      State = "Pending"
	Unknown      State = ""
)
