package olm

import (
	"slices"

	kjson "sigs.k8s.io/json"
)

// OperatorGroup is what rules read of operators.coreos.com/v1 OperatorGroup.
type OperatorGroup struct {
	Metadata ObjectMeta `json:"metadata"`
	Spec     struct {
		TargetNamespaces targets       `json:"targetNamespaces"`
		Selector         groupSelector `json:"selector"`
	} `json:"spec"`
	Status struct {
		Namespaces targets `json:"namespaces"`
	} `json:"status"`
}

// targets summarizes names of namespaces: whether there are any, and whether they mean all.
type targets struct{ any, all bool }

// UnmarshalJSON treats a list that is too long as all namespaces.
func (t *targets) UnmarshalJSON(raw []byte) error {
	if CountValues(raw) > maxGroupValues {
		*t = targets{any: true, all: true}
		return nil
	}
	var names []string
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &names); err != nil {
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
	err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &selector)
	*s = groupSelector(selector.MatchLabels || selector.MatchExpressions)
	return err
}

// values reports whether a JSON value contains others.
type values bool

// UnmarshalJSON counts the values.
func (v *values) UnmarshalJSON(raw []byte) error {
	*v = CountValues(raw) > 0
	return nil
}

// Global reports whether a group targets all namespaces, or might: what it selects is known only once OLM has written it to the status.
func (g *OperatorGroup) Global() bool {
	switch {
	case g.Spec.TargetNamespaces.all || g.Status.Namespaces.all:
		return true
	case g.Spec.TargetNamespaces.any:
		return false
	case bool(g.Spec.Selector):
		return !g.Status.Namespaces.any
	}
	return true
}
