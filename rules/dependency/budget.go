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
// others. A watch is on one kind in one namespace, for any number of Policies and objects, and takes about 60 KiB.
// Policies and PolicySets need no watch. Three Policies at their limit fit into a namespace.
const (
	maxPolicyWatches    = 12
	maxNamespaceWatches = 40
	maxWatches          = 400
)

// Waiter is a Policy that depends on objects.
type Waiter struct {
	types.NamespacedName
	// Created is the creation time: older Policies take precedence.
	Created time.Time
	Objects []Ref
}

// waiter is a Policy and what has to be watched for it.
type waiter struct {
	types.NamespacedName
	created time.Time
	// watches are sorted references without names: to all objects of a kind in a namespace.
	watches []Ref
}

func (w waiter) compare(other waiter) int {
	return cmp.Or(w.created.Compare(other.created), strings.Compare(w.Namespace, other.Namespace),
		strings.Compare(w.Name, other.Name))
}

// watchOf returns the reference to all objects of the kind in the namespace. It is not ok for Policies and PolicySets,
// which are always read.
func watchOf(object Ref) (watch Ref, ok bool) {
	ok = !object.IsPolicy() && !object.IsSet()
	object.Name = ""
	return object, ok
}

// Budget assigns the watches to Policies, oldest first, so that a newer Policy never takes a watch from an older one.
// The result does not depend on the order of calls. The zero value is unused; it is safe for concurrent use.
type Budget struct {
	mu sync.Mutex
	// waiters are sorted, the oldest first. beyond are the watches that exceed the limits, by Policy.
	waiters []waiter
	beyond  map[types.NamespacedName]map[Ref]bool
}

// Set replaces the objects that a Policy depends on; without objects it is removed. It returns the other Policies whose
// watches changed.
func (b *Budget) Set(w Waiter) (changed []types.NamespacedName) {
	now := waiter{NamespacedName: w.NamespacedName, created: w.Created}
	for _, object := range w.Objects {
		if watch, ok := watchOf(object); ok {
			now.watches = append(now.watches, watch)
		}
	}
	slices.SortFunc(now.watches, Ref.Compare)
	now.watches = slices.Compact(now.watches)
	b.mu.Lock()
	defer b.mu.Unlock()
	var before waiter
	if i := slices.IndexFunc(b.waiters, func(o waiter) bool { return o.NamespacedName == now.NamespacedName }); i >= 0 {
		before = b.waiters[i]
		b.waiters = slices.Delete(b.waiters, i, i+1)
	}
	if len(now.watches) > 0 {
		i, _ := slices.BinarySearchFunc(b.waiters, now, waiter.compare)
		b.waiters = slices.Insert(b.waiters, i, now)
	}
	if slices.Equal(before.watches, now.watches) && (before.created.Equal(now.created) || len(now.watches) == 0) {
		return nil
	}
	former := b.beyond
	b.ration()
	for _, other := range b.waiters {
		if key := other.NamespacedName; key != now.NamespacedName && !maps.Equal(former[key], b.beyond[key]) {
			changed = append(changed, key)
		}
	}
	return changed
}

// ration applies the limits to the Policies, oldest first.
func (b *Budget) ration() {
	all, namespaces := map[Ref]bool{}, map[string]map[Ref]bool{}
	b.beyond = map[types.NamespacedName]map[Ref]bool{}
	for _, w := range b.waiters {
		in, own := namespaces[w.Namespace], 0
		if in == nil {
			in = map[Ref]bool{}
			namespaces[w.Namespace] = in
		}
		for _, watch := range w.watches {
			if own < maxPolicyWatches && (in[watch] || len(in) < maxNamespaceWatches) &&
				(all[watch] || len(all) < maxWatches) {
				all[watch], in[watch] = true, true
				own++
				continue
			}
			if b.beyond[w.NamespacedName] == nil {
				b.beyond[w.NamespacedName] = map[Ref]bool{}
			}
			b.beyond[w.NamespacedName][watch] = true
		}
	}
}

// Beyond reports whether an object exceeds the limits of a Policy.
func (b *Budget) Beyond(policy types.NamespacedName, object Ref) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	watch, ok := watchOf(object)
	return ok && b.beyond[policy][watch]
}

// TooManyText returns the message for a dependency beyond the limits.
func TooManyText() string {
	return fmt.Sprintf("too many objects are waited for: the Policies of a namespace may wait for objects of %d kinds and namespaces, of which %d for one Policy, "+
		"and all Policies together of %d kinds and namespaces; older Policies come first", maxNamespaceWatches,
		maxPolicyWatches, maxWatches)
}
