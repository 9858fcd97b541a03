package policy

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/dependency"
)

// members indexes PolicySets by the Policies that they name. The zero value is ready for use.
type members struct {
	mu sync.Mutex
	of map[types.NamespacedName]map[types.NamespacedName]struct{}
}

// change applies a PolicySet that was added (old is nil), changed or deleted (now is nil).
func (m *members) change(key types.NamespacedName, old, now *dependency.Set) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old != nil {
		for _, name := range old.Policies {
			member := types.NamespacedName{Namespace: key.Namespace, Name: name}
			if delete(m.of[member], key); len(m.of[member]) == 0 {
				delete(m.of, member)
			}
		}
	}
	if now == nil {
		return
	}
	if m.of == nil {
		m.of = map[types.NamespacedName]map[types.NamespacedName]struct{}{}
	}
	for _, name := range now.Policies {
		member := types.NamespacedName{Namespace: key.Namespace, Name: name}
		if m.of[member] == nil {
			m.of[member] = map[types.NamespacedName]struct{}{}
		}
		m.of[member][key] = struct{}{}
	}
}

// sets returns the PolicySets that name a Policy.
func (m *members) sets(policy types.NamespacedName) []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.of[policy]))
}
