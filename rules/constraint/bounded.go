package constraint

import (
	"sync"
	"sync/atomic"
)

// boundedMap remembers results. Reading takes no lock. It is emptied when it is full: what it holds can be had
// again, and an order of use would cost every reader a write. The zero value is ready.
type boundedMap[K comparable, V any] struct {
	entries atomic.Pointer[sync.Map]
	weight  atomic.Int64
}

// get finds what was put under a key.
func (m *boundedMap[K, V]) get(key K) (V, bool) {
	if entries := m.entries.Load(); entries != nil {
		if v, ok := entries.Load(key); ok {
			return v.(V), true //nolint:forcetypeassert // only put stores
		}
	}
	var none V
	return none, false
}

// put adds an entry of some weight, and first drops all others where the sum would exceed the limit.
func (m *boundedMap[K, V]) put(key K, value V, weight, limit int64) {
	if weight > limit {
		return
	}
	entries := m.entries.Load()
	if entries == nil || m.weight.Load()+weight > limit {
		fresh := new(sync.Map)
		if m.entries.CompareAndSwap(entries, fresh) {
			m.weight.Store(0)
		}
		entries = m.entries.Load()
	}
	if _, there := entries.LoadOrStore(key, value); !there {
		m.weight.Add(weight)
	}
}
