// Package virtual decides on virtual operators: the ClusterServiceVersions that pass the properties of Constraints to
// OLM's resolver. It decides which namespaces need them, what they contain, and what to do if something else exists. It
// has no client and writes nothing.
package virtual

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/controller/owned"
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
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(map[string]any{"properties": append([]olm.Property{}, properties...)}); err != nil {
		panic(err) // a Property's value is valid JSON
	}
	return string(bytes.TrimSpace(text.Bytes()))
}

// Object returns the operator for one namespace.
func (o *Operator) Object(namespace string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": o.spec()}}
	u.SetGroupVersionKind(olm.ClusterServiceVersionGVK)
	u.SetNamespace(namespace)
	u.SetName(o.Name)
	u.SetLabels(o.labels())
	u.SetAnnotations(map[string]string{metakey.Properties: o.properties})
	u.SetOwnerReferences([]metav1.OwnerReference{o.owner()})
	return u
}

func (o *Operator) labels() map[string]string {
	return map[string]string{metakey.VirtualOperator: rules.VirtualOperatorLabelValue(o.Constraint),
		metakey.ManagedBy: owned.ManagedBy}
}

// owner makes the API server delete the operator with its Constraint, even if Opgate was removed.
func (o *Operator) owner() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: constraintv1.GroupVersion.String(), Kind: constraintv1.Kind,
		Name: o.Constraint, UID: o.uid}
}

// spec is the smallest that OLM accepts. It has no deployment and no owned kind, and with OwnNamespace as its only
// install mode OLM never copies it to other namespaces. Empty fields are written as OLM's own types write them: OLM
// updates whole objects and would change them otherwise.
func (o *Operator) spec() map[string]any {
	var modes []any
	for _, mode := range []string{"OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"} {
		modes = append(modes, map[string]any{"type": mode, "supported": mode == "OwnNamespace"})
	}
	return map[string]any{
		"displayName": "Cluster properties: " + o.Constraint,
		"description": "Shows OLM's resolver the properties that Constraint " + o.Constraint +
			" gives the cluster. It runs nothing. " +
			"Opgate made it, keeps it as it is, and deletes it when the Constraint no longer asks for it here; change the Constraint instead.",
		"version":      "0.0.0",
		"maturity":     "stable",
		"provider":     map[string]any{"name": "Opgate"},
		"installModes": modes,
		"install": map[string]any{"strategy": "deployment",
			"spec": map[string]any{"deployments": []any{}}},
		"customresourcedefinitions": map[string]any{},
		"apiservicedefinitions":     map[string]any{},
		"cleanup":                   map[string]any{"enabled": false},
	}
}

// Corrected returns a stored object with the desired content, nil if it needs no change. Fields that others, above all
// OLM, added are retained.
func (o *Operator) Corrected(live *unstructured.Unstructured) *unstructured.Unstructured {
	next := live.DeepCopy()
	differs := false
	if marks := labels.Merge(next.GetLabels(), o.labels()); !maps.Equal(marks, next.GetLabels()) {
		differs = true
		next.SetLabels(marks)
	}
	if annotations := next.GetAnnotations(); annotations[metakey.Properties] != o.properties {
		differs = true
		next.SetAnnotations(labels.Merge(annotations, map[string]string{metakey.Properties: o.properties}))
	}
	if owners := next.GetOwnerReferences(); !slices.ContainsFunc(owners, o.isOwner) {
		differs = true
		owners = slices.DeleteFunc(owners, func(r metav1.OwnerReference) bool { return r.Kind == constraintv1.Kind })
		next.SetOwnerReferences(append(owners, o.owner()))
	}
	if wanted := o.spec(); !reflect.DeepEqual(said(live.Object["spec"]), said(wanted)) {
		differs = true
		next.Object["spec"] = wanted
	}
	if !differs {
		return nil
	}
	return next
}

func (o *Operator) isOwner(r metav1.OwnerReference) bool {
	r.Controller, r.BlockOwnerDeletion = nil, nil
	return r == o.owner()
}

// said returns a value without its empty, null and false parts.
func said(value any) any {
	switch v := value.(type) {
	case map[string]any:
		kept := make(map[string]any, len(v))
		for name, field := range v {
			if field := said(field); field != nil {
				kept[name] = field
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case []any:
		kept := make([]any, len(v))
		for i := range v {
			kept[i] = said(v[i])
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case string:
		if v == "" {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	}
	return value
}

// Action is one write.
type Action struct {
	// Constraint is the name of the Constraint of this virtual operator. It may have been deleted.
	Constraint string
	// Object is the object to create, or the result that a patch is to have; nil to delete it. Live is the stored
	// object; nil to create it.
	Object, Live *unstructured.Unstructured
}

// Decision is what to do in a namespace.
type Decision struct {
	Actions []Action
	// Taken are the Constraints whose virtual operator cannot be created because another object has its name.
	Taken []string
}

// Decide compares the desired virtual operators of a namespace with the existing ones. Live has all objects with
// Opgate's label; an object with the name of a virtual operator but without the label is not Opgate's and is left
// unchanged.
func Decide(ns *state.Namespace, operators []*Operator, live []*unstructured.Unstructured) Decision {
	var d Decision
	if ns.Deleting() || !ns.Exists() {
		return d // its contents are deleted with it, or the namespace is not known yet
	}
	wanted := map[string]bool{}
	for _, o := range operators {
		if !o.WantedIn(ns) {
			continue
		}
		wanted[o.Name] = true
		i := slices.IndexFunc(live, func(u *unstructured.Unstructured) bool { return u.GetName() == o.Name })
		switch {
		case i >= 0 && live[i].GetDeletionTimestamp() != nil:
			// Its deletion event leads to another reconciliation, which creates a new one.
		case i >= 0:
			if corrected := o.Corrected(live[i]); corrected != nil {
				d.Actions = append(d.Actions, Action{Constraint: o.Constraint, Object: corrected, Live: live[i]})
			}
		case slices.ContainsFunc(ns.Installed(), func(c state.Installed) bool { return c.Name == o.Name }):
			d.Taken = append(d.Taken, o.Constraint)
		default:
			d.Actions = append(d.Actions, Action{Constraint: o.Constraint, Object: o.Object(ns.Name())})
		}
	}
	for _, u := range live {
		if name := ConstraintOf(u); name != "" && !wanted[u.GetName()] && u.GetDeletionTimestamp() == nil {
			d.Actions = append(d.Actions, Action{Constraint: name, Live: u})
		}
	}
	return d
}

// ConstraintOf returns the name of the Constraint that an object with Opgate's label was created for, "" for an object
// that is no virtual operator: if a user set the label while no webhook prevented it, the object must not be deleted.
func ConstraintOf(u *unstructured.Unstructured) string {
	for _, owner := range u.GetOwnerReferences() {
		if owner.Kind == constraintv1.Kind && rules.VirtualOperatorName(owner.Name) == u.GetName() {
			return owner.Name
		}
	}
	if label := u.GetLabels()[metakey.VirtualOperator]; rules.VirtualOperatorName(label) == u.GetName() {
		return label
	}
	return ""
}
