package dependency

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/opgate/opgate/internal/persistent"
)

// Graph is the dependency graph of Policies and PolicySets. It is immutable; nil is an empty one. A changed Graph
// shares nearly all of its data with the one that it was made from.
type Graph struct {
	policies *persistent.Map[Ref, *Policy]
	sets     *persistent.Map[Ref, *Set]
	// producers are the templates by the object that they create, in a stable order; nearly always one.
	producers *persistent.Map[Ref, []producer]
}

// producer is one template of a Policy.
type producer struct {
	policy   *Policy
	template int
}

// produces returns the objects that the templates of a Policy create, by the index of the template.
func (p *Policy) produces(yield func(object Ref, template int)) {
	for i := range p.Templates {
		if t := &p.Templates[i]; t.Readable {
			yield(t.Ref, i)
		}
	}
	if p.HidesTemplates {
		yield(OperatorPolicyRef(p.Namespace, anyName), 0)
	}
}

func (p *Policy) produce(producers *persistent.Edit[Ref, []producer]) {
	p.produces(func(object Ref, template int) {
		found, _ := producers.Next.Get(object)
		at, _ := slices.BinarySearchFunc(found, producer{p, template}, func(a, b producer) int {
			return cmp.Or(a.policy.Ref().Compare(b.policy.Ref()), cmp.Compare(a.template, b.template))
		})
		producers.Set(object, slices.Insert(slices.Clip(found), at, producer{p, template}))
	})
}

// WithPolicy returns the graph with a Policy added or replaced.
func (g *Graph) WithPolicy(p *Policy) *Graph { return g.changed(p.Ref(), p) }

// WithoutPolicy returns the graph without a Policy.
func (g *Graph) WithoutPolicy(namespace, name string) *Graph {
	return g.changed(PolicyRef(namespace, name), nil)
}

func (g *Graph) changed(ref Ref, p *Policy) *Graph {
	next := g.copied()
	policies, producers := next.policies.Edit(), next.producers.Edit()
	if before, ok := next.policies.Get(ref); ok {
		before.produces(func(object Ref, _ int) {
			found, _ := producers.Next.Get(object)
			if found = slices.DeleteFunc(slices.Clone(found), func(m producer) bool { return m.policy == before }); len(found) == 0 {
				producers.Remove(object)
				return
			}
			producers.Set(object, found)
		})
	}
	if policies.Remove(ref); p != nil {
		policies.Set(ref, p)
		p.produce(producers)
	}
	next.policies, next.producers = policies.Next, producers.Next
	return next
}

// WithSet returns the graph with a PolicySet added or replaced.
func (g *Graph) WithSet(s *Set) *Graph { return g.changedSet(s.Ref(), s) }

// WithoutSet returns the graph without a PolicySet.
func (g *Graph) WithoutSet(namespace, name string) *Graph {
	return g.changedSet(SetRef(namespace, name), nil)
}

func (g *Graph) changedSet(ref Ref, s *Set) *Graph {
	next := g.copied()
	sets := next.sets.Edit()
	if sets.Remove(ref); s != nil {
		sets.Set(ref, s)
	}
	next.sets = sets.Next
	return next
}

func (g *Graph) copied() *Graph {
	if g == nil {
		return &Graph{}
	}
	next := *g
	return &next
}

// Policy returns a Policy, or nil.
func (g *Graph) Policy(namespace, name string) *Policy {
	if g == nil {
		return nil
	}
	p, _ := g.policies.Get(PolicyRef(namespace, name))
	return p
}

// Set returns a PolicySet, or nil.
func (g *Graph) Set(namespace, name string) *Set {
	if g == nil {
		return nil
	}
	s, _ := g.sets.Get(SetRef(namespace, name))
	return s
}

// producersOf returns the templates that create an object.
func (g *Graph) producersOf(object Ref) []producer {
	if g == nil {
		return nil
	}
	found, _ := g.producers.Get(object)
	return found
}

// dependenciesOf returns what the state of an object waits for.
//
// A Policy waits for the dependencies of its templates, except those with ignorePending, which do not affect its state.
// The object that a template creates waits for what the template waits for. A PolicySet waits for its members. The spec
// of a disabled Policy has no effect.
func (g *Graph) dependenciesOf(from Ref) []Ref {
	var to []Ref
	var last []*Dependency
	add := func(list []*Dependency) {
		if len(list) == 0 || len(last) == len(list) && &last[0] == &list[0] {
			return // templates without dependencies of their own share one list
		}
		last = list
		for i := range list {
			to = append(to, list[i].Ref)
		}
	}
	for _, m := range g.producersOf(from) {
		if !m.policy.Disabled {
			add(m.policy.Templates[m.template].Dependencies)
		}
	}
	if p := g.Policy(from.Namespace, from.Name); from.IsPolicy() && p != nil && !p.Disabled {
		for i := range p.Templates {
			if !p.Templates[i].IgnorePending {
				add(p.Templates[i].Dependencies)
			}
		}
	}
	if s := g.Set(from.Namespace, from.Name); from.IsSet() && s != nil {
		for _, name := range s.Policies {
			to = append(to, PolicyRef(s.Namespace, name))
		}
	}
	return to
}

// Cycle returns a shortest path from an object back to itself along its dependencies; the first and last element are
// from. It is nil if there is none.
func (g *Graph) Cycle(from Ref) []Ref {
	cameFrom := map[Ref]Ref{}
	for queue := []Ref{from}; len(queue) > 0; queue = queue[1:] {
		for _, next := range g.dependenciesOf(queue[0]) {
			if _, seen := cameFrom[next]; seen {
				continue
			}
			cameFrom[next] = queue[0]
			if next != from {
				queue = append(queue, next)
				continue
			}
			path := []Ref{from}
			for at := cameFrom[from]; at != from; at = cameFrom[at] {
				path = append(path, at)
			}
			path = append(path, from)
			slices.Reverse(path)
			return path
		}
	}
	return nil
}

// PolicyCycle returns a short cycle that contains a Policy, or the object that one of its templates creates; nil if
// there is none. A template with ignorePending can wait for itself without its Policy waiting for it.
func (g *Graph) PolicyCycle(namespace, name string) (shortest []Ref) {
	cycle := g.Cycle(PolicyRef(namespace, name))
	p := g.Policy(namespace, name)
	if cycle != nil || p == nil || p.Disabled {
		return cycle
	}
	s := search{graph: g, wanted: map[Ref]bool{}, number: map[Ref]int{}}
	for i := range p.Templates {
		if t := &p.Templates[i]; t.Readable && len(t.Dependencies) > 0 {
			s.wanted[t.Ref] = true
		}
	}
	for i := range p.Templates {
		if r := p.Templates[i].Ref; s.wanted[r] && s.number[r] == 0 {
			s.visit(r)
		}
	}
	const enough = 5 // each must be fixed, and a hostile Policy can have hundreds
	for _, start := range s.found[:min(len(s.found), enough)] {
		if c := g.Cycle(start); shortest == nil || len(c) < len(shortest) {
			shortest = c
		}
	}
	return shortest
}

// search finds those of some objects that are part of a cycle, one of each strongly connected component (Tarjan).
type search struct {
	graph  *Graph
	wanted map[Ref]bool
	// number is the order of discovery, from 1; math.MaxInt once the component of the object is complete.
	number map[Ref]int
	// open are the objects whose component is not complete.
	open  []Ref
	found []Ref
}

// visit returns the lowest number that an object leads back to.
func (s *search) visit(r Ref) (low int) {
	number, depth := len(s.number)+1, len(s.open)
	low, s.number[r], s.open = number, number, append(s.open, r)
	to := s.graph.dependenciesOf(r)
	for _, next := range to {
		if s.number[next] == 0 {
			low = min(low, s.visit(next))
		}
		low = min(low, s.number[next])
	}
	if low < number {
		return low
	}
	component := s.open[depth:]
	s.open = s.open[:depth]
	for _, c := range component {
		s.number[c] = math.MaxInt
	}
	if len(component) > 1 || slices.Contains(to, r) {
		if i := slices.IndexFunc(component, func(c Ref) bool { return s.wanted[c] }); i >= 0 {
			s.found = append(s.found, component[i])
		}
	}
	return low
}

// maxSteps bounds the objects of a cycle or a chain that a message shows.
const maxSteps = 10

// ChainText formats a cycle as "Policy shop/a -> Policy shop/b -> Policy shop/a"; the middle of a long one is left out.
func ChainText(cycle []Ref) string {
	parts := make([]string, 0, maxSteps+1)
	for i, r := range cycle {
		if more := len(cycle) - maxSteps; more > 0 && i >= maxSteps/2 && i < len(cycle)-maxSteps/2 {
			if i == maxSteps/2 {
				parts = append(parts, "... ("+strconv.Itoa(more)+" more) ...")
			}
			continue
		}
		parts = append(parts, r.String())
	}
	return strings.Join(parts, " -> ")
}
