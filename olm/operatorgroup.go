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

// targets are names of namespaces, of which only counts whether there are any, and whether they stand for all.
type targets struct{ any, all bool }

// UnmarshalJSON takes a list that is too long for all namespaces.
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

// groupSelector reports whether a label selector selects by anything.
type groupSelector bool

// UnmarshalJSON looks at no more than whether there is something.
func (s *groupSelector) UnmarshalJSON(raw []byte) error {
	var selector struct {
		MatchLabels      values `json:"matchLabels"`
		MatchExpressions values `json:"matchExpressions"`
	}
	err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &selector)
	*s = groupSelector(selector.MatchLabels || selector.MatchExpressions)
	return err
}

// values reports whether a JSON value holds others.
type values bool

// UnmarshalJSON counts.
func (v *values) UnmarshalJSON(raw []byte) error {
	*v = CountValues(raw) > 0
	return nil
}

// Global reports whether a group is for all namespaces, or might be: what it selects is known only once OLM has written it into
// the status.
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
