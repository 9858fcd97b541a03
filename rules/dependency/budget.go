package dependency

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The limits of what Opgate watches for Policies, so that their authors can exhaust neither its memory nor the share of
// others. A watch is on one kind in one namespace, for any number of Policies and objects, and takes about
// 60 KiB; a dependency object takes about 1 KiB. Policies and PolicySets need no watch. Three Policies at their limit
// fit into a namespace.
const (
	maxPolicyWatches    = 12
	maxNamespaceWatches = 40
	maxWatches          = 400
	// maxNamespaceObjects bounds the watched objects of the Policies of one namespace.
	maxNamespaceObjects = 2_000
)

// Waiter is a Policy that depends on objects.
type Waiter struct {
	Namespace, Name string
	// Created is the creation time: older Policies take precedence.
	Created time.Time
	// Objects are sorted.
	Objects []Ref
}

func (w Waiter) compare(other Waiter) int {
	return cmp.Or(w.Created.Compare(other.Created), strings.Compare(w.Namespace, other.Namespace),
		strings.Compare(w.Name, other.Name))
}

// Budget assigns the watches to Policies, oldest first, so that a newer Policy never takes a watch from an older one.
// The result does not depend on the order of calls. The zero value is unused; it is safe for concurrent use.
type Budget struct {
	mu         sync.Mutex
	namespaces map[string]*share
	// watches is the sum of those of the namespaces; full is set if it exceeds the limit.
	watches int
	full    bool
}

// share is what the Policies of one namespace use.
type share struct {
	// waiters are sorted, the oldest first.
	waiters []Waiter
	// watches is the number of those within the limits of the namespace; beyond is what exceeds them, by Policy.
	watches int
	beyond  map[string]map[Ref]bool
	// closed is set if the watches of older namespaces leave none.
	closed bool
}

// Set replaces the objects that a Policy depends on; a Waiter without objects is removed. It returns references to the
// other Policies whose allocation changed.
func (b *Budget) Set(w Waiter) (changed []Ref) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.namespaces[w.Namespace]
	if s == nil {
		s = &share{}
	}
	if i := slices.IndexFunc(s.waiters, func(o Waiter) bool { return o.Name == w.Name }); i >= 0 {
		if s.waiters[i].Created.Equal(w.Created) && slices.Equal(s.waiters[i].Objects, w.Objects) {
			return nil
		}
		s.waiters = slices.Delete(s.waiters, i, i+1)
	}
	if len(w.Objects) > 0 {
		i, _ := slices.BinarySearchFunc(s.waiters, w, Waiter.compare)
		s.waiters = slices.Insert(s.waiters, i, w)
	}
	if b.namespaces == nil {
		b.namespaces = map[string]*share{}
	}
	if b.namespaces[w.Namespace] = s; len(s.waiters) == 0 {
		delete(b.namespaces, w.Namespace)
	}
	before, watches := s.beyond, s.watches
	s.ration()
	for _, other := range s.waiters {
		if !maps.Equal(before[other.Name], s.beyond[other.Name]) {
			changed = append(changed, PolicyRef(other.Namespace, other.Name))
		}
	}
	b.watches += s.watches - watches
	changed = append(changed, b.close()...)
	return slices.DeleteFunc(changed, func(r Ref) bool { return r == PolicyRef(w.Namespace, w.Name) })
}

// ration applies the limits to the Policies of a namespace, oldest first.
func (s *share) ration() {
	type area struct{ group, kind, namespace string }
	objects, open := map[Ref]bool{}, map[area]bool{}
	s.beyond = map[string]map[Ref]bool{}
	for _, w := range s.waiters {
		own := map[area]bool{}
		for _, r := range w.Objects {
			a := area{r.Group, r.Kind, r.Namespace}
			if !r.watched() {
				continue
			}
			if !objects[r] && len(objects) == maxNamespaceObjects || !own[a] && len(own) == maxPolicyWatches ||
				!open[a] && len(open) == maxNamespaceWatches {
				if s.beyond[w.Name] == nil {
					s.beyond[w.Name] = map[Ref]bool{}
				}
				s.beyond[w.Name][r] = true
				continue
			}
			objects[r], own[a], open[a] = true, true, true
		}
	}
	s.watches = len(open)
}

// close leaves no watch to the namespaces, except the oldest, that exceed the total limit, and returns the Policies for
// which that changed. A namespace is as old as its oldest Policy.
func (b *Budget) close() (changed []Ref) {
	if b.watches <= maxWatches && !b.full {
		return nil
	}
	b.full = b.watches > maxWatches
	left := maxWatches
	for _, s := range slices.SortedFunc(maps.Values(b.namespaces),
		func(a, b *share) int { return a.waiters[0].compare(b.waiters[0]) }) {
		if left -= s.watches; s.closed == (left < 0) {
			continue
		}
		s.closed = left < 0
		for _, w := range s.waiters {
			changed = append(changed, PolicyRef(w.Namespace, w.Name))
		}
	}
	return changed
}

// Beyond reports whether an object exceeds the limits of a Policy.
func (b *Budget) Beyond(policy types.NamespacedName, object Ref) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.namespaces[policy.Namespace]
	return s != nil && object.watched() && (s.closed || s.beyond[policy.Name][object])
}

// watched reports whether an object needs a watch: Policies and PolicySets are always read.
func (r Ref) watched() bool { return !r.IsPolicy() && !r.IsSet() }

// TooManyText returns the message for a dependency beyond the limits.
func TooManyText() string {
	return fmt.Sprintf("too many objects are waited for: the Policies of a namespace may wait for %d objects, of %d kinds and namespaces, of which %d for one Policy, "+
		"and all Policies together of %d kinds and namespaces; older Policies come first", maxNamespaceObjects,
		maxNamespaceWatches, maxPolicyWatches, maxWatches)
}
