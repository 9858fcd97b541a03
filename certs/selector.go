package certs

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/internal/metakey"
)

// foreignSelectors returns the entries whose namespaceSelector goes by other labels than the name, with these labels,
// sorted. Manifests have no such selectors: a controller has added them, as AKS does. Who may set these labels exempts
// namespaces.
//
// They are reported besides being set back: a controller that changes each write of the object adds them again.
func foreignSelectors(u *unstructured.Unstructured) []string {
	entries, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
	var found []string
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		selector, _ := entry["namespaceSelector"].(map[string]any)
		labels, _ := selector["matchLabels"].(map[string]any)
		for label := range labels {
			found = append(found, fmt.Sprintf("%v: %s", entry["name"], label))
		}
		expressions, _ := selector["matchExpressions"].([]any)
		for _, x := range expressions {
			expression, _ := x.(map[string]any)
			if label, _ := expression["key"].(string); label != metakey.NamespaceName {
				found = append(found, fmt.Sprintf("%v: %s", entry["name"], label))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// reportSelectors reports selectors that exclude namespaces by labels, by a metric and, when they change, in the log.
func (k *Controller) reportSelectors() {
	for _, r := range k.registrations {
		current := r.Get()
		if current == nil || r.verb == "" {
			continue
		}
		found := foreignSelectors(current)
		k.options.Metrics.selected(r.label, len(found) > 0)
		if slices.Equal(found, k.selectors[r.label]) {
			continue
		}
		k.selectors[r.label] = found
		if len(found) > 0 {
			k.options.Log.Info("namespaceSelectors changed, namespaces are exempt by label",
				"kind", r.kind.Kind, "name", r.name, "selectors", found)
		} else {
			k.options.Log.Info("namespaceSelectors are restored", "kind", r.kind.Kind, "name", r.name)
		}
	}
}
