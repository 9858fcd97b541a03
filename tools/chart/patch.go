package chart

import (
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// patchOf is a patch for kustomize that makes an object into another one, "" if they are equal. Lists whose elements
// have names are changed element by element, others as a whole.
func patchOf(from, to string) (string, error) {
	var old, wanted map[string]any
	if err := yaml.Unmarshal([]byte(from), &old); err != nil {
		return "", err
	}
	if err := yaml.Unmarshal([]byte(to), &wanted); err != nil {
		return "", err
	}
	patch, err := changes(old, wanted)
	if err != nil || len(patch) == 0 {
		return "", err
	}
	// What the patch is for.
	patch["apiVersion"], patch["kind"] = wanted["apiVersion"], wanted["kind"]
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	for _, key := range []string{"name", "namespace"} {
		if value, ok := wanted["metadata"].(map[string]any)[key]; ok {
			metadata[key] = value
		}
	}
	text, err := yaml.Marshal(patch)
	return string(text), err
}

// changes are the fields of wanted that are not the same in old; nil means one that wanted does not have.
func changes(old, wanted map[string]any) (map[string]any, error) {
	patch := map[string]any{}
	for key, value := range wanted {
		before, ok := old[key]
		if reflect.DeepEqual(before, value) {
			continue
		}
		if !ok {
			patch[key] = value
			continue
		}
		changed, err := change(before, value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		patch[key] = changed
	}
	for key := range old {
		if _, ok := wanted[key]; !ok {
			patch[key] = nil
		}
	}
	return patch, nil
}

func change(old, wanted any) (any, error) {
	switch wanted := wanted.(type) {
	case map[string]any:
		if old, ok := old.(map[string]any); ok {
			return changes(old, wanted)
		}
	case []any:
		if old, ok := old.([]any); ok && named(old) && named(wanted) {
			return elements(old, wanted)
		}
	}
	return wanted, nil
}

// removed marks what a patch removes.
const removed = "$patch"

func named(list []any) bool {
	return !slices.ContainsFunc(list, func(element any) bool { return nameOf(element) == "" })
}

// removalOf is a patch for kustomize that removes an object.
func removalOf(d Document) (string, error) {
	var o metav1.PartialObjectMetadata
	if err := yaml.Unmarshal([]byte(d.Text), &o); err != nil {
		return "", err
	}
	metadata := map[string]any{"name": o.Name}
	if o.Namespace != "" {
		metadata["namespace"] = o.Namespace
	}
	text, err := yaml.Marshal(map[string]any{"apiVersion": o.APIVersion, "kind": o.Kind, "metadata": metadata,
		removed: "delete"})
	return string(text), err
}

func nameOf(element any) string {
	object, _ := element.(map[string]any)
	name, _ := object["name"].(string)
	return name
}

func elements(old, wanted []any) ([]any, error) {
	var patch []any
	for _, element := range wanted {
		i := slices.IndexFunc(old, func(o any) bool { return nameOf(o) == nameOf(element) })
		if i < 0 {
			patch = append(patch, element)
			continue
		}
		changed, err := changes(old[i].(map[string]any), element.(map[string]any))
		if err != nil {
			return nil, err
		}
		if len(changed) > 0 {
			changed["name"] = nameOf(element)
			patch = append(patch, changed)
		}
	}
	for _, element := range old {
		if !slices.ContainsFunc(wanted, func(w any) bool { return nameOf(w) == nameOf(element) }) {
			patch = append(patch, map[string]any{"name": nameOf(element), removed: "delete"})
		}
	}
	return patch, nil
}
