package watches

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// Kind is a kind that the API server serves from a CustomResourceDefinition. It must not be modified.
type Kind = snapshot.Definition

// Kinds are the kinds of a cluster that come from CustomResourceDefinitions. It is safe for concurrent use.
type Kinds struct {
	gatekeeper bool

	mu sync.RWMutex
	// established are the definitions of the kinds that are served.
	established map[schema.GroupKind]*definition
}

// NewKinds returns empty Kinds.
func NewKinds(o Options) *Kinds {
	return &Kinds{gatekeeper: o.Gatekeeper, established: map[schema.GroupKind]*definition{}}
}

// Lookup returns a kind if it is served.
func (k *Kinds) Lookup(group, kind string) (Kind, bool) {
	d, ok := k.definition(schema.GroupKind{Group: group, Kind: kind})
	if !ok {
		return Kind{}, false
	}
	return k.with(d), true
}

// Templates returns the kinds that templates may contain, sorted.
func (k *Kinds) Templates() []Kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var kinds []Kind
	for _, d := range k.established {
		if k.template(d) {
			kinds = append(kinds, k.with(d))
		}
	}
	slices.SortFunc(kinds, func(a, b Kind) int {
		return strings.Compare(a.Group+"/"+a.Kind, b.Group+"/"+b.Kind)
	})
	return kinds
}

func (k *Kinds) with(d *definition) Kind {
	kind := d.Kind
	kind.Template = k.template(d)
	return kind
}

// template reports whether templates may contain a kind. The definitions of Gatekeeper's own kinds do not declare it.
func (k *Kinds) template(d *definition) bool {
	if (dependency.Ref{Group: d.Group, Kind: d.Kind.Kind}).Gatekeeper() {
		return k.gatekeeper
	}
	return d.Template
}

// groupKinds returns the kinds that are served.
func (k *Kinds) groupKinds() []schema.GroupKind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return slices.Collect(maps.Keys(k.established))
}

func (k *Kinds) definition(kind schema.GroupKind) (*definition, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	d, ok := k.established[kind]
	return d, ok
}

// replace applies a definition that was added (old is nil), changed or deleted (now is nil), and returns the kinds that
// differ from before.
func (k *Kinds) replace(old, now *definition) (changed []schema.GroupKind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// After a watch was interrupted, the deletion of a definition may arrive after the one that replaced it.
	if old != nil && old.Established && k.established[old.GroupKind()].called(old.name) {
		if now == nil || !now.Established || now.GroupKind() != old.GroupKind() {
			delete(k.established, old.GroupKind())
			changed = append(changed, old.GroupKind())
		}
	}
	if now == nil || !now.Established {
		return changed
	}
	before := k.established[now.GroupKind()]
	k.established[now.GroupKind()] = now
	if before == nil || before.uid != now.uid || !sameKind(before.Kind, now.Kind) {
		changed = append(changed, now.GroupKind())
	}
	return changed
}

// sameKind reports whether two definitions define the same kind, whatever their annotations.
func sameKind(a, b Kind) bool {
	a.Annotations, b.Annotations = 0, 0
	return reflect.DeepEqual(a, b)
}

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

// watchKey returns the key of what to watch for objects of the kind in a namespace, or without one, in all. It uses the storage
// version, so that reads need no conversion webhook, which may not answer.
func (d *definition) watchKey(namespace string) watchKey {
	served := d.Storage
	if !d.serves(served) || served == "" {
		served = d.Versions[0]
	}
	if !d.Namespaced {
		namespace = ""
	}
	return watchKey{resource: schema.GroupVersionResource{Group: d.Group, Version: served, Resource: d.Plural},
		namespaced: d.Namespaced, namespace: namespace, definition: d.uid}
}
