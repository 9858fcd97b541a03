package policy

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/dependency"
)

// members finds the PolicySets that name a Policy. It stores nothing for each member, since a PolicySet may have many
// (threat O40). The zero value is ready for use.
type members struct {
	mu sync.Mutex
	// in are the PolicySets of each namespace, by name.
	in map[string][]*dependency.Set
}

// change applies a PolicySet that was added, changed or deleted (now is nil).
func (m *members) change(key types.NamespacedName, now *dependency.Set) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sets := m.in[key.Namespace]
	i, found := slices.BinarySearchFunc(sets, key.Name,
		func(s *dependency.Set, name string) int { return strings.Compare(s.Name, name) })
	switch {
	case found && now != nil:
		sets[i] = now
	case found:
		sets = slices.Delete(sets, i, i+1)
	case now != nil:
		sets = slices.Insert(sets, i, now)
	}
	if len(sets) == 0 {
		delete(m.in, key.Namespace)
		return
	}
	if m.in == nil {
		m.in = map[string][]*dependency.Set{}
	}
	m.in[key.Namespace] = sets
}

// sets returns the PolicySets that name a Policy.
func (m *members) sets(policy types.NamespacedName) (keys []types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, set := range m.in[policy.Namespace] {
		if set.Has(policy.Name) {
			keys = append(keys, set.Key())
		}
	}
	return keys
}
