package virtual

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
)

// maxProperties is how long the annotation may become, in bytes. The API server takes 256 KiB of annotations, of which
// OLM's own need some.
const maxProperties = 240 << 10

// Operator is the virtual operator of one Constraint, the same in every namespace.
type Operator struct {
	// Constraint is the name of the Constraint, Name that of the ClusterServiceVersion.
	Constraint, Name string
	// Problem is why none can be made; then it is wanted nowhere.
	Problem *Problem

	uid        types.UID
	selector   labels.Selector
	properties string
}

// Problem is why something cannot be made, in the form of a condition: a word for programs and a sentence.
type Problem struct{ Reason, Message string }

// The reasons of problems.
const (
	ReasonInvalid         = "Invalid"
	ReasonInvalidSelector = "InvalidSelector"
	ReasonNoProperties    = "NoProperties"
	ReasonTooLarge        = "TooLarge"
)

// Of gives the virtual operator that a Constraint asks for, nil where it asks for none. Automatic are the properties
// that it shows besides its own.
func Of(c *constraintv1.Constraint, d *constraint.Definition, automatic []olm.Property) *Operator {
	text, ok := c.Annotations[rules.VirtualOperatorNamespacesAnnotation]
	if !ok {
		return nil
	}
	o := &Operator{Constraint: c.Name, Name: rules.VirtualOperatorName(c.Name), uid: c.UID}
	selector, err := labels.Parse(text)
	switch {
	case slices.ContainsFunc(d.Faults, func(f constraint.Fault) bool { return !f.Warning() }):
		o.Problem = &Problem{ReasonInvalid, "what it offers counts for nothing until its faults are corrected, which condition " + constraintv1.ConditionReady + " names"}
	case err != nil:
		o.Problem = &Problem{ReasonInvalidSelector, fmt.Sprintf(
			"annotation %s is not a label selector: %v; write one as for kubectl -l, for example team in (a, b)", rules.VirtualOperatorNamespacesAnnotation, err)}
	case len(d.Properties) == 0:
		o.Problem = &Problem{ReasonNoProperties, "spec.properties is empty: there is nothing to show to OLM"}
	default:
		o.selector, o.properties = selector, wrapped(slices.Concat(d.Properties, automatic))
		if len(o.properties) > maxProperties {
			o.Problem = &Problem{ReasonTooLarge, fmt.Sprintf(
				"the properties take %d bytes, and an annotation holds at most %d: spread them over several Constraints", len(o.properties), maxProperties)}
		}
	}
	return o
}

// Automatic gives the properties of the cluster that no Constraint gives: Opgate fills in the version of Kubernetes.
func Automatic(set *constraint.Set) []olm.Property {
	given := map[string]bool{}
	for _, d := range set.Definitions() {
		for _, p := range d.Properties {
			given[p.Type] = true
		}
	}
	var automatic []olm.Property
	for _, p := range set.Cluster().Properties {
		if !given[p.Type] {
			automatic = append(automatic, p)
		}
	}
	return automatic
}

// WantedIn tells whether the operator is to be in a namespace: its Constraint selects it, and there is something to
// resolve. That a namespace is on its way out, or not known, is for the caller to see.
func (o *Operator) WantedIn(ns *rules.Namespace) bool {
	return o.Problem == nil && len(ns.Subscriptions()) > 0 && o.selector.Matches(labels.Set(ns.Facts().Labels))
}

// wrapped writes properties as OLM reads them, the values as they were written but for white space.
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
