package dependency

import (
	"cmp"
	"strings"

	"github.com/opgate/opgate/internal/text"
)

// Ref names one object. The API version does not count: the same object in two versions is one object. Namespace is
// empty for kinds that are known to be cluster-scoped.
type Ref struct{ Group, Kind, Namespace, Name string }

// String shows "Policy shop/db", "Constraint curated", and other groups than Opgate's own as
// "Widget.example.com shop/w".
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

// Compare orders by kind, as people read it, then by namespace and name.
func (r Ref) Compare(other Ref) int {
	return cmp.Or(strings.Compare(r.Kind, other.Kind), strings.Compare(r.Group, other.Group),
		strings.Compare(r.Namespace, other.Namespace), strings.Compare(r.Name, other.Name))
}

// PolicyRef is the Ref of a Policy.
func PolicyRef(namespace, name string) Ref {
	return Ref{Group: PolicyGroup, Kind: KindPolicy, Namespace: namespace, Name: name}
}

// SetRef is the Ref of a PolicySet.
func SetRef(namespace, name string) Ref {
	return Ref{Group: PolicyGroup, Kind: KindPolicySet, Namespace: namespace, Name: name}
}

// IsPolicy and IsSet tell the two kinds that have edges of their own.
func (r Ref) IsPolicy() bool { return r.Group == PolicyGroup && r.Kind == KindPolicy }

// IsSet reports whether a PolicySet is meant.
func (r Ref) IsSet() bool { return r.Group == PolicyGroup && r.Kind == KindPolicySet }

// Guard reports whether the object restrains what may be installed.
func (r Ref) Guard() bool {
	return r.Group == PolicyGroup && r.Kind == KindOperatorPolicy || r.Group == ConstraintGroup && r.Kind == KindConstraint
}

// Gatekeeper reports whether the kind is one of Gatekeeper's.
func (r Ref) Gatekeeper() bool {
	return r.Group == GatekeeperConstraintGroup || r.Group == GatekeeperTemplateGroup && r.Kind == KindConstraintTemplate
}

// clusterScoped reports whether the kind is known to have no namespaces. Of other kinds only the cluster knows.
func (r Ref) clusterScoped() bool {
	return r.Group == ConstraintGroup && r.Kind == KindConstraint || r.Gatekeeper()
}

// State is a state of compliance, as written in a status. Empty is unknown. Objects of others may have other states than
// the three.
type State string

// The states that Opgate itself gives.
const (
	Compliant    State = "Compliant"
	NonCompliant State = "NonCompliant"
	Pending      State = "Pending"
	Unknown      State = ""
)
