package virtual

import (
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	klabels "k8s.io/apimachinery/pkg/labels"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

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
	if marks := klabels.Merge(next.GetLabels(), o.labels()); !maps.Equal(marks, next.GetLabels()) {
		differs = true
		next.SetLabels(marks)
	}
	if annotations := next.GetAnnotations(); annotations[metakey.Properties] != o.properties {
		differs = true
		next.SetAnnotations(klabels.Merge(annotations, map[string]string{metakey.Properties: o.properties}))
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
