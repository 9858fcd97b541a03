package watches

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

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
