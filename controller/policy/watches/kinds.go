package watches

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/rules/dependency"
)

// Kind is a kind that the API server serves from a CustomResourceDefinition. It is shared and must not be changed.
type Kind struct {
	Group, Kind, Plural string
	// Versions are those that are served, the preferred one first.
	Versions []string
	// Storage is the version that objects are stored in. It may be one that is not served.
	Storage    string
	Namespaced bool
	// Template tells that templates may be of it.
	Template bool
}

// Kinds are the kinds of a cluster that come from CustomResourceDefinitions. Its methods may be called from any goroutine.
type Kinds struct {
	gatekeeper bool

	mu sync.RWMutex
	// established are the definitions of the kinds that are served.
	established map[schema.GroupKind]*definition
}

// NewKinds makes Kinds that are none yet.
func NewKinds(o Options) *Kinds {
	return &Kinds{gatekeeper: o.Gatekeeper, established: map[schema.GroupKind]*definition{}}
}

// Lookup gives a kind if it is served.
func (k *Kinds) Lookup(group, kind string) (Kind, bool) {
	d, ok := k.definition(schema.GroupKind{Group: group, Kind: kind})
	if !ok {
		return Kind{}, false
	}
	return k.with(d), true
}

// Templates gives the kinds that templates may be of, in order.
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

// template tells whether templates may be of a kind. Gatekeeper's own do not say so of themselves.
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

// replace takes a definition that appeared (there is no old one), changed or disappeared (there is no new one), and tells which
// kinds differ from before.
func (k *Kinds) replace(old, now *definition) (changed []schema.GroupKind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// After a pause in the watch a definition may be reported gone after the one that took over its kind.
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
