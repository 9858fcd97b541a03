package templates

import (
	"cmp"
	"slices"

	"github.com/stolostron/kubernetes-dependency-watches/client"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/lookup"
)

// serviceAccount is the account, in Opgate's namespace, that lookups are made as. It has the rights that an
// administrator grants to templates and no others.
const serviceAccount = "opgate-lookups"

// lookups is the watcher of a session. Every lookup of a template passes it, and it finds nothing that templates must
// not read.
type lookups struct {
	client.DynamicWatcher
	// reserved is Opgate's own namespace, in which nothing is found whatever the account may read; "" reserves none.
	reserved string
	// scope and limits are those of the resolution.
	scope  scope
	limits *limits
}

// scope is what the templates of a policy may look up.
type scope struct {
	// unlimited scopes are of commands, which make requests with the rights of their own user.
	unlimited bool
	// namespace is the policy's own.
	namespace string
	// verified is set if the policy's author has the right to get all of lookups; else only what is in namespace may be
	// looked up.
	verified bool
	lookups  []lookup.Lookup
}

// literal reports whether every lookup names its object in the text of the template, so that a message that quotes the
// name shows nothing that was looked up.
func (s *scope) literal() bool {
	return !slices.ContainsFunc(s.lookups, func(l lookup.Lookup) bool { return l.Name == "" })
}

// permits fails if a policy's templates must not look up an object or, without a name, all of a kind. What its text
// does not show was not verified, so that a lookup that was not understood is never made.
func (s *scope) permits(resource client.ScopedGVR, namespace, name string) error {
	covered := func(l lookup.Lookup) bool { return l.Covers(resource.GroupResource(), namespace, name) }
	switch {
	case s.unlimited:
	case !slices.ContainsFunc(s.lookups, covered):
		return limitErrorf("it looks up what Opgate did not find in its text; write the kind, namespace and name in the call itself")
	case !s.verified && (!resource.Namespaced || namespace != s.namespace):
		return limitError(rules.UnverifiedLookupText)
	}
	return nil
}

// Get returns one object.
func (l *lookups) Get(
	watcher client.ObjectIdentifier, gvk schema.GroupVersionKind, namespace, name string,
) (*unstructured.Unstructured, error) {
	resource, err := l.allows(gvk, namespace)
	if err != nil {
		return nil, err
	}
	if resource.Namespaced && namespace == "" {
		return nil, limitErrorf("%s has namespaces: write one", gvk.Kind)
	}
	if err := l.scope.permits(resource, namespace, name); err != nil {
		return nil, err
	}
	found, err := l.DynamicWatcher.Get(watcher, gvk, namespace, name)
	return found, cmp.Or(err, l.limits.lookedUp(found))
}

// List returns the objects of a kind in a namespace or, if that is empty, in all except Opgate's.
func (l *lookups) List(
	watcher client.ObjectIdentifier, gvk schema.GroupVersionKind, namespace string, selector labels.Selector,
) ([]unstructured.Unstructured, error) {
	resource, err := l.allows(gvk, namespace)
	if err != nil {
		return nil, err
	}
	if err := l.scope.permits(resource, namespace, ""); err != nil {
		return nil, err
	}
	found, err := l.DynamicWatcher.List(watcher, gvk, namespace, selector)
	found = slices.DeleteFunc(found, func(o unstructured.Unstructured) bool {
		return resource.Namespaced && o.GetNamespace() == l.reserved
	})
	return found, cmp.Or(err, l.limits.lookedUp(found))
}

// allows returns the resource of a kind, and fails if templates must not look it up there, whatever their policy.
func (l *lookups) allows(gvk schema.GroupVersionKind, namespace string) (resource client.ScopedGVR, err error) {
	resource, err = l.GVKToGVR(gvk)
	switch {
	case err != nil:
		return resource, err
	case resource.Group == "" && resource.Resource == "secrets":
		return resource, limitErrorf("templates of OperatorPolicies cannot look up Secrets")
	case !resource.Namespaced && namespace != "": // which the library would ignore
		return resource, limitErrorf(`%s has no namespace: write ""`, gvk.Kind)
	case namespace != "" && namespace == l.reserved:
		return resource, limitErrorf("templates cannot look up what is in namespace %s, which is Opgate's own",
			namespace)
	case namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0:
		return resource, limitErrorf("the namespace of a lookup is not the name of one")
	}
	return resource, nil
}

// withoutSecrets returns a function of the library that reads a Secret, in a form that fails.
func withoutSecrets(name string) func(...any) (string, error) {
	return func(...any) (string, error) {
		return "", limitErrorf("%s is not a function in templates of OperatorPolicies, which cannot look up Secrets",
			name)
	}
}
