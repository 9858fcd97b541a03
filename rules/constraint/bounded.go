package constraint

import (
	"sync"
	"sync/atomic"
)

// boundedMap caches results. Reads take no lock. It is cleared when it is full: results can be recomputed, and an LRU
// order would cost every reader a write. The zero value is ready to use.
type boundedMap[K comparable, V any] struct {
	entries atomic.Pointer[sync.Map]
	weight  atomic.Int64
}

// get returns the value of a key.
func (m *boundedMap[K, V]) get(key K) (V, bool) {
	if entries := m.entries.Load(); entries != nil {
		if v, ok := entries.Load(key); ok {
			return v.(V), true //nolint:forcetypeassert // only put stores
		}
	}
	var none V
	return none, false
}

// put adds an entry of a given weight; if the total would exceed the limit, it first removes all other entries. One
// that exceeds the limit alone is not stored.
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
