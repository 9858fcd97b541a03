package watches

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// definition is a CustomResourceDefinition.
type definition struct {
	Kind
	name string
	uid  types.UID
}

// definitionOf returns the definition in an object of the store; nil for none.
func definitionOf(o *snapshot.Object) *definition {
	if o == nil || o.Definition() == nil {
		return nil
	}
	return &definition{*o.Definition(), o.Name, o.UID}
}

// called reports whether it has that name.
func (d *definition) called(name string) bool { return d != nil && d.name == name }

// serves reports whether a version is served; "" is any.
func (d *definition) serves(version string) bool {
	return version == "" || slices.Contains(d.Versions, version)
}

// possible reports whether an object could have that namespace and name. The API server would read others as another
// request.
func (d *definition) possible(ref dependency.Ref) bool {
	valid := func(s string) bool { return s != "" && len(rest.IsValidPathSegmentName(s)) == 0 }
	return valid(ref.Name) && (!d.Namespaced || valid(ref.Namespace))
}

// subject returns what to watch for objects of the kind in a namespace, or without one, in all. It uses the storage
// version, so that reads need no conversion webhook, which may not answer.
func (d *definition) subject(namespace string) subject {
	served := d.Storage
	if !d.serves(served) || served == "" {
		served = d.Versions[0]
	}
	if !d.Namespaced {
		namespace = ""
	}
	return subject{resource: schema.GroupVersionResource{Group: d.Group, Version: served, Resource: d.Plural},
		namespaced: d.Namespaced, namespace: namespace, definition: d.uid}
}
