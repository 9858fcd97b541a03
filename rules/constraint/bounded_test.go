package constraint

import (
	"sync"
	"testing"
)

// TestBoundedMap: it never exceeds its limit by much under concurrent writes, and returns what was put.
func TestBoundedMap(t *testing.T) {
	const limit, writers = 100, 8
	var m boundedMap[int, int]
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			for i := range 10_000 {
				key := i*writers + w
				m.put(key, -key, 1, limit)
				if v, ok := m.get(key); ok && v != -key {
					t.Errorf("%d: %d", key, v)
				}
			}
		})
	}
	wait.Wait()
	held := 0
	m.entries.Load().Range(func(_, _ any) bool { held++; return true })
	if held > limit+writers {
		t.Errorf("holds %d", held)
	}
	m.put(-1, 1, limit+1, limit)
	if _, ok := m.get(-1); ok {
		t.Error("holds what is larger than its limit")
	}
}

// TestEvictedRules: a cluster's rules stay with their definitions after eviction from the cache; a bundle's must be
// prepared again.
func TestEvictedRules(t *testing.T) {
	s := NewSet([]*Definition{sound(t, "one", seed(`channel == "evicted"`), "")}, kubeOne)
	b := etcd("olm.constraint", `{"cel":{"rule":"properties.exists(p, p.type == 'evicted')"}}`)
	Prepare(b.Properties)
	programs.Clear()
	if found := s.Judge(b, shop, nil); len(found) != 1 || found[0].Outcome != Violated {
		t.Errorf("%+v", found)
	}
	if found := s.Own(b, nil, shop, nil); len(found) != 1 || found[0].Why != whyNotCompiled {
		t.Errorf("%+v", found)
	}
}
