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

// Limits bound what Opgate watches for Policies: whoever may write some must not be able to take its memory, nor the share of others
// (threat O23). A watch is on one kind in one namespace, whoever waits there and for however many objects.
type Limits struct {
	// PolicyWatches, NamespaceWatches and Watches bound the watches for one Policy, for those of one namespace, and for all.
	PolicyWatches, NamespaceWatches, Watches int
	// Objects bounds the objects that the Policies of one namespace wait for.
	Objects int
}

// DefaultLimits cost at most 4 MiB for each namespace with Policies, and 40 MiB altogether: a watch takes about 60 KiB, an object that
// is waited for about 1 KiB. Policies and PolicySets need no watch. A Policy for an operator waits for a handful of kinds in its own
// namespace and one or two others.
var DefaultLimits = Limits{PolicyWatches: 20, NamespaceWatches: 40, Watches: 400, Objects: 2_000}

// Waiter is a Policy that waits for objects.
type Waiter struct {
	Namespace, Name string
	// Created is when: what is older comes first.
	Created time.Time
	Objects []Ref
}

func (w *Waiter) compare(other *Waiter) int {
	return cmp.Or(w.Created.Compare(other.Created), strings.Compare(w.Namespace, other.Namespace), strings.Compare(w.Name, other.Name))
}

// area is what one watch is on.
type area struct {
	schema.GroupKind
	namespace string
}

// areaOf returns what has to be watched for an object; nothing for Policies and PolicySets, which are read in any case.
func areaOf(r Ref) (a area, watched bool) {
	return area{schema.GroupKind{Group: r.Group, Kind: r.Kind}, r.Namespace}, !r.IsPolicy() && !r.IsSet()
}

// Budget shares the watches out: the oldest Policies come first, so that what is written later never takes from what is there. The
// same waiters get the same whatever order they are set in. It is not safe for concurrent use.
type Budget struct {
	limits     Limits
	namespaces map[string]*share
	// areas counts the namespaces that have each; closed are those beyond Limits.Watches.
	areas  map[area]int
	closed map[area]bool
}

// share is what the Policies of one namespace have.
type share struct {
	waiters map[string]*Waiter
	objects map[Ref]int
	areas   map[area]int
	// open are the areas within the limits of the namespace, beyond what is not, by the name of the Policy.
	open   map[area]bool
	beyond map[string]map[Ref]bool
}

// NewBudget returns a Budget that nothing has been taken from.
func NewBudget(limits Limits) *Budget {
	return &Budget{limits: limits, namespaces: map[string]*share{}, areas: map[area]int{}, closed: map[area]bool{}}
}

// Set makes these the objects that a Policy waits for, in place of those before; with none it is forgotten. It returns the other
// Policies, as references, for which something changed by that.
func (b *Budget) Set(w Waiter) (changed []Ref) {
	s := b.namespaces[w.Namespace]
	if s == nil {
		s = &share{waiters: map[string]*Waiter{}, objects: map[Ref]int{}, areas: map[area]int{}}
		b.namespaces[w.Namespace] = s
	}
	before := s.waiters[w.Name]
	if before != nil && before.Created.Equal(w.Created) && slices.Equal(before.Objects, w.Objects) || before == nil && len(w.Objects) == 0 {
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

// Beyond reports whether an object is beyond what a Policy may wait for.
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

// count adds or takes away what a Policy waits for.
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

// reopen finds out what of a namespace is within its limits.
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

// ration goes through the Policies of a namespace, the oldest first.
func (s *share) ration(limits Limits) {
	s.beyond = map[string]map[Ref]bool{}
	objects := map[Ref]bool{}
	for _, w := range slices.SortedFunc(maps.Values(s.waiters), (*Waiter).compare) {
		own := map[area]bool{}
		for _, object := range w.Objects {
			a, watched := areaOf(object)
			within := objects[object] || len(objects) < limits.Objects
			if watched && !own[a] {
				within = within && len(own) < limits.PolicyWatches && (s.open[a] || len(s.open) < limits.NamespaceWatches)
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

// reclose finds out which areas are beyond what all may have together, and returns the Policies for which that has changed, but one.
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

// BeyondText says what a dependency beyond the limits comes to.
func (l Limits) BeyondText() string {
	return fmt.Sprintf("too many objects are waited for: the Policies of a namespace may wait for %d objects, of %d kinds and namespaces, of which %d for one Policy, "+
		"and all Policies together of %d kinds and namespaces; older Policies come first", l.Objects, l.NamespaceWatches, l.PolicyWatches, l.Watches)
}
