package watches

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/rules/dependency"
)

// Kind is a kind that the API server serves from a CustomResourceDefinition. It is shared and must not be modified.
type Kind struct {
	Group, Kind, Plural string
	// Versions are the served versions, the preferred one first.
	Versions []string
	// Storage is the storage version. It may be one that is not served.
	Storage    string
	Namespaced bool
	// Template reports that templates may contain it.
	Template bool
}

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
	kind := d.kind
	kind.Template = k.template(d)
	return kind
}

// template reports whether templates may contain a kind. The definitions of Gatekeeper's own kinds do not declare it.
func (k *Kinds) template(d *definition) bool {
	if (dependency.Ref{Group: d.kind.Group, Kind: d.kind.Kind}).Gatekeeper() {
		return k.gatekeeper
	}
	return d.kind.Template
}

func (k *Kinds) definition(kind schema.GroupKind) (*definition, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	d, ok := k.established[kind]
	return d, ok
}

// replace applies a definition that was added (old is nil), changed or deleted (now is nil), and returns the kinds that differ
// from before.
func (k *Kinds) replace(old, now *definition) (changed []schema.GroupKind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// After a watch was interrupted, the deletion of a definition may arrive after the one that replaced it.
	if old != nil && old.established && k.established[old.groupKind()].called(old.Name) {
		if now == nil || !now.established || now.groupKind() != old.groupKind() {
			delete(k.established, old.groupKind())
			changed = append(changed, old.groupKind())
		}
	}
	if now == nil || !now.established {
		return changed
	}
	before := k.established[now.groupKind()]
	k.established[now.groupKind()] = now
	if before == nil || before.UID != now.UID || !reflect.DeepEqual(before.kind, now.kind) {
		changed = append(changed, now.groupKind())
	}
	return changed
}
