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

// openTemplates watches the template objects of a kind if any may exist.
func (w *Watches) openTemplates(kind schema.GroupKind) {
	d, ok := w.kinds.definition(kind)
	ok = ok && w.kinds.template(d)
	if f := w.templates[kind]; f != nil {
		if ok && f.subject == d.subject("") {
			return
		}
		f.stop()
		delete(w.templates, kind)
	}
	if !ok || w.run == nil {
		return
	}
	f := w.newWatch(d.subject(""), nil)
	f.changed = func(old, now *unstructured.Unstructured) {
		notified := owners{}
		notified.addParents(old, now)
		w.notify(notified)
	}
	f.onChange = func(before *watchState) {
		notified := w.templated(kind)
		notified.addParents(before.all()...)
		notified.addParents(f.known.Load().all()...)
		w.notify(notified)
	}
	w.templates[kind] = f
	w.run(f)
}

// templated returns the owners that have templates of a kind.
func (w *Watches) templated(kind schema.GroupKind) owners {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := owners{}
	for t, named := range w.targets[kind] {
		if t.Template {
			all.add(named.owners)
		}
	}
	return all
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
