package watches

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/dependency"
)

// Observe returns the state of a target. A target that no owner has set counts as not read; for Policies and PolicySets
// it reports only whether their kind is served.
func (w *Watches) Observe(t Target) dependency.Observed {
	d, ok := w.kinds.definition(t.kind())
	switch {
	case !ok:
		return dependency.Observed{Reason: dependency.NoKind, Detail: "no CustomResourceDefinition serves " +
			kindName(t.Ref)}
	case !d.serves(t.Version):
		return dependency.Observed{Reason: dependency.NoKind, Detail: notServed(t, d.Versions)}
	case !d.possible(t.Ref):
		return dependency.Observed{Reason: dependency.NotFound}
	}
	known := w.known(t, d)
	switch {
	case known == nil:
		return dependency.Observed{Reason: dependency.NotRead}
	case known.denied != nil:
		return dependency.Observed{Reason: dependency.Forbidden, Detail: known.denied.Error()}
	}
	object := known.object(d, t.Ref)
	if object == nil {
		return dependency.Observed{Reason: dependency.NotFound}
	}
	return dependency.Observe(object.Object)
}

// Object returns the stored part of a target: its metadata and the compliance fields of its status; nil if it does not
// exist, or is not known. It is shared and must not be modified.
func (w *Watches) Object(t Target) *unstructured.Unstructured {
	d, ok := w.kinds.definition(t.kind())
	if !ok || !d.possible(t.Ref) {
		return nil
	}
	return w.known(t, d).object(d, t.Ref)
}

// known returns the state of the watch that covers a target; nil if there is none.
func (w *Watches) known(t Target, d *definition) *watchState {
	w.mu.Lock()
	var f *watch
	if t.Template {
		f = w.templates[t.kind()]
	} else {
		f = w.groups[d.watchKey(t.Namespace)].of(t.Name)
	}
	w.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.known.Load()
}

// object returns one object, nil if it is not known to exist.
func (k *watchState) object(d *definition, ref dependency.Ref) *unstructured.Unstructured {
	if k == nil || k.objects == nil {
		return nil
	}
	key := ref.Name
	if d.Namespaced {
		key = ref.Namespace + "/" + ref.Name
	}
	found, ok, _ := k.objects.GetByKey(key) // a map returns no errors
	if !ok {
		return nil
	}
	return found.(*unstructured.Unstructured)
}

// of returns the objects of a Policy.
func (k *watchState) of(parent types.NamespacedName) []*unstructured.Unstructured {
	if k == nil || k.objects == nil {
		return nil
	}
	found, _ := k.objects.ByIndex(byParent, parent.String()) // only an unknown index returns an error
	return typed(found)
}

// all returns all objects.
func (k *watchState) all() []*unstructured.Unstructured {
	if k == nil || k.objects == nil {
		return nil
	}
	return typed(k.objects.List())
}

func typed(objects []any) []*unstructured.Unstructured {
	all := make([]*unstructured.Unstructured, len(objects))
	for i, object := range objects {
		all[i] = object.(*unstructured.Unstructured)
	}
	return all
}

// kindName returns the name of a kind with its group.
func kindName(ref dependency.Ref) string {
	return schema.GroupKind{Group: ref.Group, Kind: ref.Kind}.String()
}

// notServed returns a message that a version is not served, with those that are.
func notServed(t Target, versions []string) string {
	verb := "are"
	if len(versions) == 1 {
		verb = "is"
	}
	return kindName(t.Ref) + " is not served in " + t.Version + ", served " + verb + " " + strings.Join(versions, ", ")
}

// Owned returns the stored parts of the objects, of all kinds that templates may contain, whose labels name a Policy as
// their source, sorted. They are shared and must not be modified.
func (w *Watches) Owned(parent types.NamespacedName) []*unstructured.Unstructured {
	w.mu.Lock()
	watches := slices.Collect(maps.Values(w.templates))
	w.mu.Unlock()
	var owned []*unstructured.Unstructured
	for _, f := range watches {
		owned = append(owned, f.known.Load().of(parent)...)
	}
	slices.SortFunc(owned, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(strings.Compare(a.GetAPIVersion(), b.GetAPIVersion()), strings.Compare(a.GetKind(), b.GetKind()),
			strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return owned
}

// Template reports whether all template objects of a kind have been read, or why that is forbidden. For other kinds it
// returns false and nil.
func (w *Watches) Template(group, kind string) (ready bool, forbidden error) {
	w.mu.Lock()
	f := w.templates[schema.GroupKind{Group: group, Kind: kind}]
	w.mu.Unlock()
	if f == nil {
		return false, nil
	}
	known := f.known.Load()
	if known == nil {
		return false, nil
	}
	return known.denied == nil, known.denied
}

// byParent indexes template objects by their Policy.
const byParent = "parent"

func indexParent(obj any) ([]string, error) {
	if parent, ok := parentOf(obj.(*unstructured.Unstructured)); ok {
		return []string{parent.String()}, nil
	}
	return nil, nil
}

// parentOf returns the Policy of a template object, from its labels. A namespaced object belongs to a Policy of the
// same namespace, whatever its labels say: no user may assign objects to a namespace that is not theirs.
func parentOf(u *unstructured.Unstructured) (types.NamespacedName, bool) {
	if u == nil {
		return types.NamespacedName{}, false
	}
	parent, ok := dependency.PolicyOf(u.Object)
	return types.NamespacedName{Namespace: parent.Namespace, Name: parent.Name}, ok
}
