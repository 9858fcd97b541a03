package dependency

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Limits bound what Opgate watches for Policies, so that their authors can exhaust neither its memory nor the share of
// others (threat O23). A watch covers one kind in one namespace, for any number of Policies and objects.
type Limits struct {
	// PolicyWatches, NamespaceWatches and Watches bound the watches per Policy, per namespace, and in total.
	PolicyWatches, NamespaceWatches, Watches int
	// Objects bounds the dependency objects of the Policies of one namespace.
	Objects int
}

// DefaultLimits cost at most 4 MiB per namespace with Policies, and 40 MiB in total: a watch takes about 60 KiB, a
// dependency object about 1 KiB. Policies and PolicySets need no watch. A Policy for an operator usually depends on a
// few kinds in its own namespace and one or two others.
var DefaultLimits = Limits{PolicyWatches: 20, NamespaceWatches: 40, Watches: 400, Objects: 2_000}

// Waiter is a Policy that depends on objects.
type Waiter struct {
	Namespace, Name string
	// Created is the creation time: older Policies take precedence.
	Created time.Time
	Objects []Ref
}

func (w *Waiter) compare(other *Waiter) int {
	return cmp.Or(w.Created.Compare(other.Created), strings.Compare(w.Namespace, other.Namespace),
		strings.Compare(w.Name, other.Name))
}

// area is the scope of one watch.
type area struct {
	schema.GroupKind
	namespace string
}

// areaOf returns the scope to watch for an object; none for Policies and PolicySets, which are always read.
func areaOf(r Ref) (a area, watched bool) {
	return area{schema.GroupKind{Group: r.Group, Kind: r.Kind}, r.Namespace}, !r.IsPolicy() && !r.IsSet()
}

// Budget assigns the watches to Policies, oldest first, so that a newer Policy never takes a watch from an older one.
// The result does not depend on the order of calls. It is not safe for concurrent use.
type Budget struct {
	limits     Limits
	namespaces map[string]*share
	// areas counts the namespaces that need each area; closed are the areas beyond Limits.Watches.
	areas  map[area]int
	closed map[area]bool
}

// share is the part of the budget that the Policies of one namespace use.
type share struct {
	waiters map[string]*Waiter
	objects map[Ref]int
	areas   map[area]int
	// open are the areas within the limits of the namespace; beyond is what exceeds them, by the name of the Policy.
	open   map[area]bool
	beyond map[string]map[Ref]bool
}

// NewBudget returns an unused Budget.
func NewBudget(limits Limits) *Budget {
	return &Budget{limits: limits, namespaces: map[string]*share{}, areas: map[area]int{}, closed: map[area]bool{}}
}

// Set replaces the objects that a Policy depends on; a Waiter without objects is removed. It returns references to the
// other Policies whose allocation changed.
func (b *Budget) Set(w Waiter) (changed []Ref) {
	s := b.namespaces[w.Namespace]
	if s == nil {
		s = &share{waiters: map[string]*Waiter{}, objects: map[Ref]int{}, areas: map[area]int{}}
		b.namespaces[w.Namespace] = s
	}
	before := s.waiters[w.Name]
	if before != nil && before.Created.Equal(w.Created) && slices.Equal(before.Objects, w.Objects) || before == nil &&
		len(w.Objects) == 0 {
		b.drop(w.Namespace, s)
		return nil
	}
	w.Objects = slices.Clone(w.Objects)
	s.count(before, -1)
	if delete(s.waiters, w.Name); len(w.Objects) > 0 {
		s.waiters[w.Name] = &w
		s.count(&w, 1)
	}
	was := s.beyond
	b.reopen(s, b.limits)
	for _, name := range slices.Sorted(maps.Keys(s.waiters)) {
		if name != w.Name && !maps.Equal(was[name], s.beyond[name]) {
			changed = append(changed, PolicyRef(w.Namespace, name))
		}
	}
	changed = append(changed, b.reclose(PolicyRef(w.Namespace, w.Name))...)
	b.drop(w.Namespace, s)
	return changed
}

func (b *Budget) drop(namespace string, s *share) {
	if len(s.waiters) == 0 {
		delete(b.namespaces, namespace)
	}
}

// Beyond reports whether an object exceeds the limits of a Policy.
func (b *Budget) Beyond(namespace, name string, object Ref) bool {
	s := b.namespaces[namespace]
	if s == nil {
		return false
	}
	if s.beyond[name][object] {
		return true
	}
	a, watched := areaOf(object)
	return watched && b.closed[a]
}

// count adds or subtracts the objects of a Policy.
func (s *share) count(w *Waiter, by int) {
	if w == nil {
		return
	}
	for _, object := range w.Objects {
		add(s.objects, object, by)
		if a, watched := areaOf(object); watched {
			add(s.areas, a, by)
		}
	}
}

func add[K comparable](counts map[K]int, key K, by int) {
	if counts[key] += by; counts[key] <= 0 {
		delete(counts, key)
	}
}

// reopen recomputes which areas of a namespace are within its limits.
func (b *Budget) reopen(s *share, limits Limits) {
	before := s.open
	s.open, s.beyond = map[area]bool{}, nil
	if len(s.objects) <= limits.Objects && len(s.areas) <= min(limits.NamespaceWatches, limits.PolicyWatches) {
		for a := range s.areas {
			s.open[a] = true
		}
	} else {
		s.ration(limits)
	}
	for a := range s.open {
		if !before[a] {
			add(b.areas, a, 1)
		}
	}
	for a := range before {
		if !s.open[a] {
			add(b.areas, a, -1)
		}
	}
}

// ration applies the limits to the Policies of a namespace, oldest first.
func (s *share) ration(limits Limits) {
	s.beyond = map[string]map[Ref]bool{}
	objects := map[Ref]bool{}
	for _, w := range slices.SortedFunc(maps.Values(s.waiters), (*Waiter).compare) {
		own := map[area]bool{}
		for _, object := range w.Objects {
			a, watched := areaOf(object)
			within := objects[object] || len(objects) < limits.Objects
			if watched && !own[a] {
				within = within && len(own) < limits.PolicyWatches &&
					(s.open[a] || len(s.open) < limits.NamespaceWatches)
			}
			if !within {
				if s.beyond[w.Name] == nil {
					s.beyond[w.Name] = map[Ref]bool{}
				}
				s.beyond[w.Name][object] = true
				continue
			}
			objects[object] = true
			if watched {
				own[a], s.open[a] = true, true
			}
		}
	}
}

// reclose recomputes which areas exceed the total limit, and returns the Policies for which that changed, except one.
func (b *Budget) reclose(but Ref) (changed []Ref) {
	if len(b.areas) <= b.limits.Watches && len(b.closed) == 0 {
		return nil
	}
	before := b.closed
	b.closed = map[area]bool{}
	if len(b.areas) > b.limits.Watches {
		opened := map[area]bool{}
		for _, w := range b.sorted() {
			s := b.namespaces[w.Namespace]
			for _, object := range w.Objects {
				a, watched := areaOf(object)
				switch {
				case !watched || s.beyond[w.Name][object] || opened[a]:
				case len(opened) < b.limits.Watches:
					opened[a] = true
					delete(b.closed, a)
				default:
					b.closed[a] = true
				}
			}
		}
	}
	for _, w := range b.sorted() {
		if ref := PolicyRef(w.Namespace, w.Name); ref != but && slices.ContainsFunc(w.Objects, func(object Ref) bool {
			a, watched := areaOf(object)
			return watched && before[a] != b.closed[a]
		}) {
			changed = append(changed, ref)
		}
	}
	return changed
}

func (b *Budget) sorted() []*Waiter {
	var all []*Waiter
	for _, s := range b.namespaces {
		all = slices.AppendSeq(all, maps.Values(s.waiters))
	}
	slices.SortFunc(all, (*Waiter).compare)
	return all
}

// BeyondText returns the message for a dependency beyond the limits.
func (l Limits) BeyondText() string {
	return fmt.Sprintf("too many objects are waited for: the Policies of a namespace may wait for %d objects, of %d kinds and namespaces, of which %d for one Policy, "+
		"and all Policies together of %d kinds and namespaces; older Policies come first", l.Objects,
		l.NamespaceWatches, l.PolicyWatches, l.Watches)
}
