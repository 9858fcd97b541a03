package olm

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/jsonsize"
)

// OperatorGroup is what rules read of operators.coreos.com/v1 OperatorGroup.
type OperatorGroup struct {
	Metadata ObjectMeta `json:"metadata"`
	Spec     groupSpec  `json:"spec"`
	Status   struct {
		Namespaces targets `json:"namespaces"`
	} `json:"status"`
}

// groupSpec is what rules read of a stored spec.
type groupSpec struct {
	TargetNamespaces targets       `json:"targetNamespaces"`
	Selector         groupSelector `json:"selector"`
	// ServiceAccount is the account as which OLM writes the steps of plans; "" for OLM's own.
	ServiceAccount string `json:"serviceAccountName"`

	// written is the JSON of the spec, unless that is large: more than maxWrittenGroup bytes.
	written []byte
	large   bool
}

// maxWrittenGroup bounds what is kept of a spec as it was written.
const maxWrittenGroup = 8 << 10

// UnmarshalJSON also keeps what was written.
func (s *groupSpec) UnmarshalJSON(raw []byte) error {
	type plain groupSpec
	if err := apijson.Unmarshal(raw, (*plain)(s)); err != nil {
		return err
	}
	if s.written, s.large = nil, len(raw) > maxWrittenGroup; !s.large {
		s.written = bytes.Clone(raw)
	}
	return nil
}

// Written returns the JSON of the spec. One that is too large to be kept is represented by its account and the namespace of the group: that is
// less than the group may be for.
func (g *OperatorGroup) Written(namespace string) []byte {
	switch {
	case g.Spec.written != nil:
		return g.Spec.written
	case !g.Spec.large:
		return []byte("{}") // it has no spec
	}
	data, err := json.Marshal(map[string]any{"targetNamespaces": []string{namespace}, "serviceAccountName": g.Spec.ServiceAccount})
	if err != nil {
		panic(err) // it has only strings
	}
	return data
}

// targets summarizes names of namespaces: whether there are any, and whether they mean all.
type targets struct{ any, all bool }

// UnmarshalJSON treats a list that is too long as all namespaces.
func (t *targets) UnmarshalJSON(raw []byte) error {
	if n, _ := jsonsize.Measure(raw); n > maxGroupValues {
		*t = targets{any: true, all: true}
		return nil
	}
	var names []string
	if err := apijson.Unmarshal(raw, &names); err != nil {
		return err
	}
	*t = targets{any: len(names) > 0, all: slices.Contains(names, "")}
	return nil
}

// groupSelector reports whether a label selector has any requirement.
type groupSelector bool

// UnmarshalJSON only checks whether the selector is empty.
func (s *groupSelector) UnmarshalJSON(raw []byte) error {
	var selector struct {
		MatchLabels      values `json:"matchLabels"`
		MatchExpressions values `json:"matchExpressions"`
	}
	err := apijson.Unmarshal(raw, &selector)
	*s = groupSelector(selector.MatchLabels || selector.MatchExpressions)
	return err
}

// values reports whether a JSON value contains others.
type values bool

// UnmarshalJSON only looks for what is between the brackets.
func (v *values) UnmarshalJSON(raw []byte) error {
	*v = (raw[0] == '[' || raw[0] == '{') && len(bytes.TrimSpace(raw[1:len(raw)-1])) > 0
	return nil
}

// Scope is where operators get the rights that their permissions ask for.
type Scope uint8

// The scopes.
const (
	// ScopeUnknown: there is no OperatorGroup, there are several, which OLM refuses, or OLM has not acted on a change of it yet.
	ScopeUnknown Scope = iota
	// ScopeNamespaces: the OperatorGroup is for named namespaces, and OLM creates Roles there.
	ScopeNamespaces
	// ScopeCluster: the OperatorGroup is for all namespaces, and OLM creates ClusterRoles.
	ScopeCluster
)

// ScopeOf returns the scope of a namespace with these OperatorGroups.
func ScopeOf(groups []*OperatorGroup) Scope {
	if len(groups) != 1 {
		return ScopeUnknown
	}
	return groups[0].scope()
}

// scope follows OLM: status.namespaces is [""] for a group without target namespaces and with an empty selector, and never otherwise
// (getOperatorGroupTargets and ensureRBACInTargetNamespace in operator-lifecycle-manager pkg/controller/operators/olm/operatorgroup.go).
// While the status contradicts the spec, OLM may act on either.
func (g *OperatorGroup) scope() Scope {
	meant := ScopeNamespaces
	if !g.Spec.TargetNamespaces.any && !bool(g.Spec.Selector) {
		meant = ScopeCluster
	}
	switch written := g.Status.Namespaces; {
	case g.Spec.TargetNamespaces.all: // OLM rejects it and leaves the status as it was
		return ScopeUnknown
	case written.any && written.all != (meant == ScopeCluster):
		return ScopeUnknown
	}
	return meant
}
