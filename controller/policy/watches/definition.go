package watches

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/rules/dependency"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// definition is the part of a CustomResourceDefinition that is stored. Schemas are most of its size and not needed here.
type definition struct {
	metav1.ObjectMeta
	kind Kind
	// established reports that its kind is served.
	established bool
}

// define transforms CustomResourceDefinitions before they are stored.
func define(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil // transformed before, or a tombstone
	}
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(u.Object, fields...) // the API server validates the types
		return s
	}
	d := &definition{
		ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()},
		kind: Kind{
			Group: text("spec", "group"),
			// Requested names may be taken; the accepted ones count.
			Kind:       cmp.Or(text("status", "acceptedNames", "kind"), text("spec", "names", "kind")),
			Plural:     cmp.Or(text("status", "acceptedNames", "plural"), text("spec", "names", "plural")),
			Namespaced: text("spec", "scope") == "Namespaced",
			Template:   u.GetLabels()[dependency.LabelTemplate] == dependency.LabelTemplateValue,
		},
	}
	each(u, func(v map[string]any) {
		name, _ := v["name"].(string)
		if v["served"] == true {
			d.kind.Versions = append(d.kind.Versions, name)
		}
		if v["storage"] == true {
			d.kind.Storage = name
		}
	}, "spec", "versions")
	slices.SortFunc(d.kind.Versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	each(u, func(c map[string]any) {
		d.established = d.established || c["type"] == "Established" && c["status"] == "True" && len(d.kind.Versions) > 0
	}, "status", "conditions")
	return d, nil
}

// each calls do for the objects of a list.
func each(u *unstructured.Unstructured, do func(map[string]any), fields ...string) {
	list, _, _ := unstructured.NestedFieldNoCopy(u.Object, fields...)
	entries, _ := list.([]any)
	for _, entry := range entries {
		if entry, ok := entry.(map[string]any); ok {
			do(entry)
		}
	}
}

func (d *definition) groupKind() schema.GroupKind {
	return schema.GroupKind{Group: d.kind.Group, Kind: d.kind.Kind}
}

// called reports whether it has that name.
func (d *definition) called(name string) bool { return d != nil && d.Name == name }

// serves reports whether a version is served; "" is any.
func (d *definition) serves(version string) bool {
	return version == "" || slices.Contains(d.kind.Versions, version)
}

// possible reports whether an object could have that namespace and name. The API server would read others as another request.
func (d *definition) possible(ref dependency.Ref) bool {
	valid := func(s string) bool { return s != "" && len(rest.IsValidPathSegmentName(s)) == 0 }
	return valid(ref.Name) && (!d.kind.Namespaced || valid(ref.Namespace))
}

// subject returns what to watch for objects of the kind in a namespace, or without one, in all. It uses the storage version, so
// that reads need no conversion webhook, which may not answer.
func (d *definition) subject(namespace string) subject {
	served := d.kind.Storage
	if !d.serves(served) || served == "" {
		served = d.kind.Versions[0]
	}
	if !d.kind.Namespaced {
		namespace = ""
	}
	return subject{resource: schema.GroupVersionResource{Group: d.kind.Group, Version: served, Resource: d.kind.Plural},
		namespaced: d.kind.Namespaced, namespace: namespace, definition: d.UID}
}
