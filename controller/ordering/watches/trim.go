package watches

import (
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// keptStatus are the fields of a status that are kept.
var keptStatus = []string{"compliant", "complianceState", "history", "conditions", "observedGeneration", "lastEvaluatedGeneration", "totalViolations", "created"}

// trim drops of objects, before they are kept, all but their metadata and what a status says of compliance: contents may be of
// any size.
func trim(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil // a tombstone
	}
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
	return &unstructured.Unstructured{Object: kept}, nil
}

// same tells whether nothing that is kept has changed but the resourceVersion.
func same(a, b *unstructured.Unstructured) bool {
	if a == nil || b == nil {
		return a == b
	}
	return reflect.DeepEqual(unversioned(a), unversioned(b))
}

func unversioned(u *unstructured.Unstructured) map[string]any {
	object := maps.Clone(u.Object)
	if metadata, ok := object["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "resourceVersion")
		object["metadata"] = metadata
	}
	return object
}
