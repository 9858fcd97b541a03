package policy

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/dependency"
)

// budget distributes watches among Policies. It is safe for concurrent use.
type budget struct {
	mu     sync.Mutex
	shared *dependency.Budget
}

// set sets the objects that a Policy depends on, and returns the other Policies whose share changes.
func (b *budget) set(stored *storedPolicy, objects map[dependency.Ref]struct{}) (changed []types.NamespacedName) {
	w := dependency.Waiter{Namespace: stored.Namespace, Name: stored.Name, Created: stored.CreationTimestamp.Time}
	for object := range objects {
		w.Objects = append(w.Objects, object)
	}
	slices.SortFunc(w.Objects, dependency.Ref.Compare)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ref := range b.shared.Set(w) {
		changed = append(changed, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
	}
	return changed
}

// forget removes a Policy, and returns the other Policies whose share changes.
func (b *budget) forget(key types.NamespacedName) (changed []types.NamespacedName) {
	return b.set(&storedPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}, nil)
}

// beyond reports whether an object exceeds the budget of a Policy.
func (b *budget) beyond(key types.NamespacedName, object dependency.Ref) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.shared.Beyond(key.Namespace, key.Name, object)
}
