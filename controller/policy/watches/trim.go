package watches

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/dependency"
)

// keptStatus are the fields of a status that are stored.
var keptStatus = []string{"compliant", "complianceState", "history", "conditions", "observedGeneration",
	"lastEvaluatedGeneration", "totalViolations", "created"}

// trim removes from template objects all but the metadata and the compliance fields of the status: contents may be of
// any size.
func trim(u *unstructured.Unstructured) *unstructured.Unstructured {
	kept := map[string]any{"apiVersion": u.Object["apiVersion"], "kind": u.Object["kind"]}
	if metadata, ok := u.Object["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "managedFields")
		kept["metadata"] = metadata
	}
	if status, ok := u.Object["status"].(map[string]any); ok {
		of := map[string]any{}
		for _, field := range keptStatus {
			if value, ok := status[field]; ok {
				of[field] = value
			}
		}
		kept["status"] = of
	}
	return &unstructured.Unstructured{Object: kept}
}

// same reports whether nothing that is stored has changed but the resourceVersion.
func same(a, b *unstructured.Unstructured) bool {
	if a == nil || b == nil {
		return a == b
	}
	b = b.DeepCopy()
	b.SetResourceVersion(a.GetResourceVersion())
	return equality.Semantic.DeepEqual(a, b)
}

// maxKept limits, in bytes, each text that is stored of a dependency: its object may be a tenant's.
const maxKept = 512

// trimDependency removes from a dependency all but what is read of it: its identity, its owner labels and the
// compliance fields of its status. It is idempotent.
func trimDependency(u *unstructured.Unstructured) *unstructured.Unstructured {
	metadata, _ := u.Object["metadata"].(map[string]any)
	kept := pick(metadata, "name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp")
	put := func(field string, value map[string]any) {
		if len(value) > 0 {
			kept[field] = value
		}
	}
	labels, _ := metadata["labels"].(map[string]any)
	put("labels", pick(labels, metakey.Policy, metakey.ClusterNamespace))
	annotations, _ := metadata["annotations"].(map[string]any)
	put("annotations", pick(annotations, metakey.Pending))
	if controller := metav1.GetControllerOf(u); controller != nil {
		kept["ownerReferences"] = []any{map[string]any{"apiVersion": short(controller.APIVersion),
			"kind": short(controller.Kind), "name": short(controller.Name),
			"uid": string(controller.UID), "controller": true}}
	}
	object := map[string]any{"apiVersion": u.Object["apiVersion"], "kind": u.Object["kind"], "metadata": kept}
	if status, ok := u.Object["status"].(map[string]any); ok {
		said := pick(status, "compliant", "complianceState", "observedGeneration", "lastEvaluatedGeneration",
			"totalViolations", "created")
		conditions, _ := status["conditions"].([]any)
		for _, entry := range conditions {
			if c, ok := entry.(map[string]any); ok && c["type"] == dependency.ConditionCompliant {
				said["conditions"] = []any{pick(c, "type", "status", "reason", "message", "observedGeneration")}
				break
			}
		}
		history, _ := status["history"].([]any)
		if len(history) > 0 {
			if newest, ok := history[0].(map[string]any); ok {
				said["history"] = []any{pick(newest, "message")}
			}
		}
		object["status"] = said
	}
	return &unstructured.Unstructured{Object: object}
}

// pick returns those fields of an object that have plain values.
func pick(object map[string]any, names ...string) map[string]any {
	kept := map[string]any{}
	for _, name := range names {
		switch value := object[name].(type) {
		case string:
			kept[name] = short(value)
		case int64, float64, bool:
			kept[name] = value
		}
	}
	return kept
}

// short returns a copy, so that the text it was part of can be garbage collected.
func short(text string) string { return strings.Clone(text[:min(len(text), maxKept)]) }
