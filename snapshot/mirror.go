package snapshot

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// mirror has the objects of a kind as they were last read, and passes on each change. It is the store of a reflector,
// or of one after another: what the last one has read stays until the next one has listed.
type mirror struct {
	// changed is called with the states of an object before and after a change; one of them may be nil. The state
	// before a deletion has the deletion's resourceVersion, so that a snapshot without the object counts as that new.
	changed func(old, now *Object)
	// known is closed once the objects have been listed and passed on, or it is known that there can be none.
	known chan struct{}
	once  sync.Once

	mu      sync.Mutex
	objects map[types.NamespacedName]*Object
}

var _ cache.ReflectorStore = &mirror{}

func newMirror(changed func(old, now *Object)) *mirror {
	return &mirror{changed: changed, known: make(chan struct{}), objects: map[types.NamespacedName]*Object{}}
}

// Add implements cache.ReflectorStore, as all methods do.
func (m *mirror) Add(object any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set(object.(*Object))
	return nil
}

// Update is Add: the object may be known or not.
func (m *mirror) Update(object any) error { return m.Add(object) }

// Delete removes an object.
func (m *mirror) Delete(object any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	gone := object.(*Object)
	m.remove(gone.Key(), gone.ResourceVersion)
	return nil
}

// Replace sets all objects.
func (m *mirror) Replace(objects []any, version string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	listed := make(map[types.NamespacedName]bool, len(objects))
	for _, object := range objects {
		o := object.(*Object)
		listed[o.Key()] = true
		m.set(o)
	}
	for key := range m.objects {
		if !listed[key] {
			m.remove(key, version)
		}
	}
	m.markKnown()
	return nil
}

// Resync does nothing: nothing depends on time.
func (m *mirror) Resync() error { return nil }

// markKnown makes the objects known.
func (m *mirror) markKnown() { m.once.Do(func() { close(m.known) }) }

func (m *mirror) set(o *Object) {
	old := m.objects[o.Key()]
	m.objects[o.Key()] = o
	m.changed(old, o)
}

func (m *mirror) remove(key types.NamespacedName, version string) {
	if old := m.objects[key]; old != nil {
		delete(m.objects, key)
		gone := *old
		gone.ResourceVersion = version
		m.changed(&gone, nil)
	}
}
