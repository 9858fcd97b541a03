package watches

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// Lookup returns the definition of a kind, nil if the kind is not served.
func (w *Watches) Lookup(group, kind string) *snapshot.Definition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kinds[schema.GroupKind{Group: group, Kind: kind}]
}

// Templates returns the kinds that templates may contain.
func (w *Watches) Templates() []*snapshot.Definition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(w.kinds)),
		func(d *snapshot.Definition) bool { return !d.Template })
}

// definition returns the definition in an object of the store; nil for none. The definitions of Gatekeeper's own kinds
// do not declare whether templates may contain them.
func (o *Options) definition(object *snapshot.Object) *snapshot.Definition {
	if object == nil || object.Definition() == nil {
		return nil
	}
	d := *object.Definition()
	if (dependency.Ref{Group: d.Group, Kind: d.Kind}).Gatekeeper() {
		d.Template = o.Gatekeeper
	}
	return &d
}

// kinds are the definitions of the kinds that are served. They must not be modified.
type kinds map[schema.GroupKind]*snapshot.Definition

// replace applies a definition that was added (old is nil), changed or deleted (now is nil), and returns the kinds that
// differ from before.
func (k kinds) replace(old, now *snapshot.Definition) (changed []schema.GroupKind) {
	if now != nil && !now.Established {
		now = nil
	}
	// After a watch was interrupted, the deletion of a definition may arrive after the one that replaced it.
	if old != nil && (now == nil || now.GroupKind() != old.GroupKind()) {
		if served := k[old.GroupKind()]; served != nil && served.Metadata.Name == old.Metadata.Name {
			delete(k, old.GroupKind())
			changed = append(changed, old.GroupKind())
		}
	}
	if now == nil {
		return changed
	}
	before := k[now.GroupKind()]
	if k[now.GroupKind()] = now; !sameKind(before, now) {
		changed = append(changed, now.GroupKind())
	}
	return changed
}

// sameKind reports whether two definitions define the same kind, whatever their annotations.
func sameKind(before, now *snapshot.Definition) bool {
	if before == nil {
		return false
	}
	same := *before
	same.Annotations = now.Annotations
	return reflect.DeepEqual(&same, now)
}

// serves reports whether a version is served; "" is any.
func serves(d *snapshot.Definition, version string) bool {
	return version == "" || slices.Contains(d.Versions, version)
}

// possible reports whether an object could have that namespace and name. The API server would read others as another
// request.
func possible(d *snapshot.Definition, ref dependency.Ref) bool {
	valid := func(s string) bool { return s != "" && len(rest.IsValidPathSegmentName(s)) == 0 }
	return valid(ref.Name) && (!d.Namespaced || valid(ref.Namespace))
}

// Observe returns the state of a target of an owner. A target that the owner has not set counts as not read; for Policies
// and PolicySets it reports only whether their kind is served.
func (w *Watches) Observe(owner types.NamespacedName, t Target) dependency.Observed {
	d, known := w.known(owner, t)
	switch {
	case known == nil:
		return dependency.Observed{Reason: dependency.TooMany, Detail: tooManyText}
	case d == nil:
		return dependency.Observed{Reason: dependency.NoKind,
			Detail: "no CustomResourceDefinition serves " + t.kind().String()}
	case !serves(d, t.Version):
		return dependency.Observed{Reason: dependency.NoKind, Detail: notServed(t, d.Versions)}
	case !possible(d, t.Ref):
		return dependency.Observed{Reason: dependency.NotFound}
	case known == unread:
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
	d, known := w.known(types.NamespacedName{}, t)
	if d == nil {
		return nil
	}
	return known.object(d, t.Ref)
}

// known returns the definition of a target's kind, nil if there is none, and the state of the watch that covers the
// target, nil if it exceeds the limits of the owner.
func (w *Watches) known(owner types.NamespacedName, t Target) (*snapshot.Definition, *watchState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.kinds[t.kind()]
	switch {
	case w.exceeds(owner, t):
		return d, nil
	case d == nil:
		return nil, unread
	}
	f := w.templates[t.kind()]
	if !t.Template {
		f = w.watches[keyOf(d, t.Namespace)]
	}
	if f == nil {
		return d, unread
	}
	known := f.known.Load()
	if _, ok := known.names[t.Name]; !ok && !t.Template && known.denied == nil {
		return d, unread
	}
	return d, known
}

// object returns one object, nil if it is not known to exist.
func (k *watchState) object(d *snapshot.Definition, ref dependency.Ref) *unstructured.Unstructured {
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

// all returns all objects.
func (k *watchState) all() (all []*unstructured.Unstructured) {
	for _, object := range k.objects.List() {
		all = append(all, object.(*unstructured.Unstructured))
	}
	return all
}

// notServed returns a message that a version is not served, with those that are.
func notServed(t Target, versions []string) string {
	verb := "are"
	if len(versions) == 1 {
		verb = "is"
	}
	return t.kind().String() + " is not served in " + t.Version + ", served " + verb + " " + strings.Join(versions, ", ")
}

// Owned returns the stored parts of the objects, of all kinds that templates may contain, whose labels name a Policy as
// their source. They are shared and must not be modified.
func (w *Watches) Owned(parent types.NamespacedName) map[dependency.Ref]*unstructured.Unstructured {
	w.mu.Lock()
	defer w.mu.Unlock()
	owned := map[dependency.Ref]*unstructured.Unstructured{}
	for _, f := range w.templates {
		found, _ := f.known.Load().objects.ByIndex(byParent, parent.String()) // only an unknown index returns an error
		for _, object := range found {
			u := object.(*unstructured.Unstructured)
			owned[dependency.RefOf(u)] = u
		}
	}
	return owned
}

// Template reports whether all template objects of a kind have been read, or why that is forbidden. For other kinds it
// returns false and nil.
func (w *Watches) Template(group, kind string) (ready bool, forbidden error) {
	_, known := w.known(types.NamespacedName{}, Target{Ref: dependency.Ref{Group: group, Kind: kind}, Template: true})
	return known != unread && known.denied == nil, known.denied
}

// byParent is the index of template objects by their Policy.
const byParent = "parent"

var indexers = cache.Indexers{byParent: func(obj any) ([]string, error) {
	if parent, ok := parentOf(obj.(*unstructured.Unstructured)); ok {
		return []string{parent.String()}, nil
	}
	return nil, nil
}}

// parentOf returns the Policy of a template object, from its labels. A namespaced object belongs to a Policy of the
// same namespace, whatever its labels say: no user may assign objects to a namespace that is not theirs.
func parentOf(u *unstructured.Unstructured) (types.NamespacedName, bool) {
	if u == nil {
		return types.NamespacedName{}, false
	}
	parent, ok := dependency.PolicyOf(u.Object)
	return types.NamespacedName{Namespace: parent.Namespace, Name: parent.Name}, ok
}
