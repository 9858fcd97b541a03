package resolve

import (
	"slices"

	"github.com/stolostron/kubernetes-dependency-watches/client"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// serviceAccount is the account, in Opgate's namespace, that lookups are made as. It has the rights that an administrator grants to
// templates and no others.
const serviceAccount = "opgate-lookups"

// lookups is the watcher of a session. Every lookup of a template passes it, and it finds nothing that templates must not read (threat O43).
type lookups struct {
	client.DynamicWatcher
	// reserved is Opgate's own namespace, in which nothing is found whatever the account may read; "" reserves none.
	reserved string
}

// Get returns one object.
func (l *lookups) Get(watcher client.ObjectIdentifier, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	namespaced, err := l.allows(gvk, namespace)
	if err != nil {
		return nil, err
	}
	if namespaced && namespace == "" {
		return nil, limitErrorf("%s %s has a namespace: write it", gvk.Kind, name)
	}
	return l.DynamicWatcher.Get(watcher, gvk, namespace, name)
}

// List returns the objects of a kind in a namespace or, if that is empty, in all except Opgate's.
func (l *lookups) List(watcher client.ObjectIdentifier, gvk schema.GroupVersionKind, namespace string, selector labels.Selector) ([]unstructured.Unstructured, error) {
	namespaced, err := l.allows(gvk, namespace)
	if err != nil {
		return nil, err
	}
	found, err := l.DynamicWatcher.List(watcher, gvk, namespace, selector)
	return slices.DeleteFunc(found, func(o unstructured.Unstructured) bool {
		return namespaced && o.GetNamespace() == l.reserved
	}), err
}

// allows reports whether a kind is namespaced, and fails if templates must not look it up there.
func (l *lookups) allows(gvk schema.GroupVersionKind, namespace string) (namespaced bool, err error) {
	resource, err := l.GVKToGVR(gvk)
	switch {
	case err != nil:
		return false, err
	case resource.Group == "" && resource.Resource == "secrets":
		return false, limitErrorf("templates of OperatorPolicies cannot look up Secrets")
	case !resource.Namespaced && namespace != "": // which the library would ignore
		return false, limitErrorf(`%s has no namespace: write ""`, gvk.Kind)
	case namespace != "" && namespace == l.reserved:
		return false, limitErrorf("templates cannot look up what is in namespace %s, which is Opgate's own", namespace)
	case namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0:
		return false, limitErrorf("the namespace of a lookup is not the name of one")
	}
	return resource.Namespaced, nil
}

// withoutSecrets returns a function of the library that reads a Secret, in a form that fails.
func withoutSecrets(name string) func(...any) (string, error) {
	return func(...any) (string, error) {
		return "", limitErrorf("%s is not a function in templates of OperatorPolicies, which cannot look up Secrets", name)
	}
}
