package watches

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/dependency"
)

// Target is an object that an owner depends on or has a template of.
type Target struct {
	dependency.Ref
	// Version is the required version of the object; "" is any. The object is read in its storage version.
	Version string
	// Template marks an object made of a template of the owner. It is covered by the watch for all template objects of
	// its kind. The owner is notified when the kind appears, changes or disappears, and when its objects have been read
	// or are forbidden; changes of the object itself notify the Policy in its labels.
	Template bool
}

// target is a Target that at least one owner has set.
type target struct {
	Target
	owners owners
	// group is the group whose watch covers it, nil for none.
	group *group
}

// owners is a set of owners to notify.
type owners map[types.NamespacedName]struct{}

func (o owners) add(others owners) { maps.Copy(o, others) }

// addParents adds the Policies of template objects.
func (o owners) addParents(objects ...*unstructured.Unstructured) {
	for _, object := range objects {
		if parent, ok := parentOf(object); ok {
			o[parent] = struct{}{}
		}
	}
}

// Set sets the targets of an owner, in place of its previous ones; an empty list removes the owner. Policies and
// PolicySets may be among them, for Dependents, but are not watched here.
func (w *Watches) Set(owner types.NamespacedName, targets []Target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	had := w.owners[owner]
	added, gone := difference(had, targets)
	if had == nil {
		had = map[Target]*target{}
		w.owners[owner] = had
	}
	for _, t := range added { // added before others are removed: watches that both need continue
		had[t] = w.name(owner, t)
	}
	for _, t := range gone {
		w.unname(owner, had[t])
		delete(had, t)
	}
	if len(had) == 0 {
		delete(w.owners, owner)
	}
}

// difference returns the targets that are new, once each, and those that were removed.
func difference(had map[Target]*target, targets []Target) (added, gone []Target) {
	wanted := make(map[Target]struct{}, len(targets))
	for _, t := range targets {
		if _, seen := wanted[t]; seen {
			continue
		}
		wanted[t] = struct{}{}
		if had[t] == nil {
			added = append(added, t)
		}
	}
	for t := range had {
		if _, ok := wanted[t]; !ok {
			gone = append(gone, t)
		}
	}
	return added, gone
}

// Dependents returns the owners that depend on an object in any version, without those that have it as a template.
func (w *Watches) Dependents(ref dependency.Ref) []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := owners{}
	for t := range w.named[ref] {
		if !t.Template {
			all.add(t.owners)
		}
	}
	return slices.Collect(maps.Keys(all))
}

// name records that an owner needs a target.
func (w *Watches) name(owner types.NamespacedName, wanted Target) *target {
	kind := groupKind(wanted.Ref)
	t := w.targets[kind][wanted]
	if t == nil {
		t = &target{Target: wanted, owners: owners{}}
		put(w.targets, kind, wanted, t)
		put(w.named, wanted.Ref, t, struct{}{})
		w.open(t)
	}
	t.owners[owner] = struct{}{}
	return t
}

// unname records that an owner does not need a target any more.
func (w *Watches) unname(owner types.NamespacedName, t *target) {
	delete(t.owners, owner)
	if len(t.owners) > 0 {
		return
	}
	w.close(t)
	remove(w.named, t.Ref, t)
	remove(w.targets, groupKind(t.Ref), t.Target)
}

// subjectOf returns the subject to watch for a target, if any: what is not served, or cannot exist, is not watched.
func (w *Watches) subjectOf(t Target) (subject, bool) {
	d, ok := w.kinds.definition(groupKind(t.Ref))
	if !ok || !d.serves(t.Version) || t.IsPolicy() || t.IsSet() || !d.possible(t.Ref) {
		return subject{}, false
	}
	return d.subject(t.Namespace), true
}

func groupKind(ref dependency.Ref) schema.GroupKind {
	return schema.GroupKind{Group: ref.Group, Kind: ref.Kind}
}

// put adds to a nested map.
func put[K, L comparable, V any](to map[K]map[L]V, key K, inner L, value V) {
	if to[key] == nil {
		to[key] = map[L]V{}
	}
	to[key][inner] = value
}

// remove removes from a nested map.
func remove[K, L comparable, V any](from map[K]map[L]V, key K, inner L) {
	delete(from[key], inner)
	if len(from[key]) == 0 {
		delete(from, key)
	}
}
