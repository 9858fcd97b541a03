package virtual

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
)

// maxProperties limits the annotation, in bytes. The API server accepts 256 KiB of annotations, of which OLM's own need
// some.
const maxProperties = 240 << 10

// Operator is the virtual operator of one Constraint, the same in every namespace.
type Operator struct {
	// Constraint is the name of the Constraint, Name that of the ClusterServiceVersion.
	Constraint, Name string
	// Problem is why it cannot be created; then no namespace needs it.
	Problem *Problem

	uid        types.UID
	selector   labels.Selector
	properties string
}

// Problem is why something cannot be created, in the form of a condition: reason and message.
type Problem struct{ Reason, Message string }

// The reasons of problems.
const (
	ReasonInvalid         = "Invalid"
	ReasonInvalidSelector = "InvalidSelector"
	ReasonNoProperties    = "NoProperties"
	ReasonNotGranted      = "NotGranted"
	ReasonNotSelected     = "NotSelected"
	ReasonTooLarge        = "TooLarge"
)

// Of returns the virtual operator that a Constraint requires, nil if it requires none. One that offers properties and
// selects no namespaces has one with a Problem. Automatic are the properties that it has in addition to its own.
func Of(c *constraintv1.Constraint, d *constraint.Definition, automatic []olm.Property) *Operator {
	text, ok := c.Annotations[metakey.VirtualOperatorNamespaces]
	o := &Operator{Constraint: c.Name, Name: rules.VirtualOperatorName(c.Name), uid: c.UID}
	if !ok {
		if len(d.Properties) == 0 {
			return nil
		}
		o.Problem = &Problem{ReasonNotSelected,
			"OLM's resolver does not see the properties of the Constraint, which only rules of Constraints may read: " +
				rules.ShowsProperties}
		return o
	}
	selector, err := labels.Parse(text)
	switch {
	case slices.ContainsFunc(d.Faults, func(f constraint.Fault) bool { return !f.Warning() }):
		o.Problem = &Problem{ReasonInvalid,
			"what it offers counts for nothing until its faults are corrected, which condition " +
				constraintv1.ConditionReady + " names"}
	case err != nil:
		o.Problem = &Problem{ReasonInvalidSelector, fmt.Sprintf(
			"annotation %s is not a label selector: %v; write one as for kubectl -l, for example team in (a, b)",
			metakey.VirtualOperatorNamespaces, err)}
	case len(d.Properties) == 0:
		o.Problem = &Problem{ReasonNoProperties, "the Constraint has no properties: there is nothing to show to OLM"}
	default:
		o.selector, o.properties = selector, wrapped(slices.Concat(d.Properties, automatic))
		if len(o.properties) > maxProperties {
			o.Problem = &Problem{ReasonTooLarge, fmt.Sprintf(
				"the properties take %d bytes, and an annotation holds at most %d: spread them over several Constraints", len(o.properties), maxProperties)}
		}
	}
	return o
}

// Automatic returns the cluster properties that no Constraint sets: Opgate adds the version of Kubernetes.
func Automatic(set *constraint.Set) []olm.Property {
	given := map[string]bool{}
	for _, d := range set.Definitions() {
		for _, p := range d.Properties {
			given[p.Type] = true
		}
	}
	var automatic []olm.Property
	for _, p := range set.Properties() {
		if !given[p.Type] {
			automatic = append(automatic, p)
		}
	}
	return automatic
}

// WantedIn reports whether a namespace needs the operator: its Constraint selects the namespace, and the namespace has
// something to resolve. The caller checks whether the namespace is known and not terminating.
func (o *Operator) WantedIn(ns *state.Namespace) bool {
	return o.Problem == nil && len(ns.Subscriptions()) > 0 && o.selector.Matches(labels.Set(ns.Labels()))
}

// wrapped encodes properties in the form that OLM reads; values are unchanged except for white space.
func wrapped(properties []olm.Property) string {
	type property struct {
		Type  string          `json:"type"`
		Value json.RawMessage `json:"value"`
	}
	list := make([]property, len(properties))
	for i, p := range properties {
		list[i] = property{p.Type, p.Raw}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(map[string]any{"properties": list}); err != nil {
		panic(err) // a Property's value is valid JSON
	}
	return string(bytes.TrimSpace(text.Bytes()))
}
