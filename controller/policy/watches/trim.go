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

const (
	// maxMessage limits, in bytes, each text that is stored of the status of a template object.
	maxMessage = 8 << 10
	// maxKept limits, in bytes, each text that is stored of a dependency: its object may be a tenant's.
	maxKept = 512
)

// trim removes from template objects all but the metadata and what is read of the status: contents may be of any size. It
// is idempotent.
func trim(u *unstructured.Unstructured) *unstructured.Unstructured {
	metadata, _ := u.Object["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	delete(metadata, "managedFields")
	return withStatus(u, metadata, maxMessage)
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

// trimDependency removes from a dependency all but what is read of it: its identity, its owner labels and the
// compliance fields of its status. It is idempotent.
func trimDependency(u *unstructured.Unstructured) *unstructured.Unstructured {
	metadata, _ := u.Object["metadata"].(map[string]any)
	kept := pick(metadata, maxKept, "name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp")
	put := func(field string, value map[string]any) {
		if len(value) > 0 {
			kept[field] = value
		}
	}
	labels, _ := metadata["labels"].(map[string]any)
	put("labels", pick(labels, maxKept, metakey.Policy, metakey.ClusterNamespace))
	annotations, _ := metadata["annotations"].(map[string]any)
	put("annotations", pick(annotations, maxKept, metakey.Pending))
	if c := metav1.GetControllerOf(u); c != nil {
		kept["ownerReferences"] = []any{pick(map[string]any{"apiVersion": c.APIVersion, "kind": c.Kind, "name": c.Name,
			"uid": string(c.UID), "controller": true}, maxKept, "apiVersion", "kind", "name", "uid", "controller")}
	}
	return withStatus(u, kept, maxKept)
}

// withStatus returns an object with this metadata and what is read of the status, with texts of at most so many bytes:
// the state, the newest message and condition Compliant.
func withStatus(u *unstructured.Unstructured, metadata map[string]any, most int) *unstructured.Unstructured {
	object := map[string]any{"apiVersion": u.Object["apiVersion"], "kind": u.Object["kind"], "metadata": metadata}
	status, ok := u.Object["status"].(map[string]any)
	if !ok {
		return &unstructured.Unstructured{Object: object}
	}
	said := pick(status, most, "compliant", "complianceState", "observedGeneration", "lastEvaluatedGeneration",
		"totalViolations", "created")
	conditions, _ := status["conditions"].([]any)
	for _, entry := range conditions {
		if c, ok := entry.(map[string]any); ok && c["type"] == dependency.ConditionCompliant {
			said["conditions"] = []any{pick(c, most, "type", "status", "reason", "message", "observedGeneration")}
			break
		}
	}
	if history, _ := status["history"].([]any); len(history) > 0 {
		if newest, ok := history[0].(map[string]any); ok {
			said["history"] = []any{pick(newest, most, "message")}
		}
	}
	object["status"] = said
	return &unstructured.Unstructured{Object: object}
}

// pick returns those fields of an object that have plain values. Texts are copies, so that those they were part of can be
// garbage collected.
func pick(object map[string]any, most int, names ...string) map[string]any {
	kept := map[string]any{}
	for _, name := range names {
		switch value := object[name].(type) {
		case string:
			kept[name] = strings.Clone(value[:min(len(value), most)])
		case int64, float64, bool:
			kept[name] = value
		}
	}
	return kept
}
