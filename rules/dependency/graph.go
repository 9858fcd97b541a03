package dependency

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/opgate/opgate/internal/persistent"
)

// Graph is the dependency graph of Policies and PolicySets. It is immutable; nil is an empty one. A changed Graph
// shares nearly all of its data with the one that it was made from.
type Graph struct {
	nodes *persistent.Map[Ref, node]
	// producers are the templates by the object that they create, in a stable order; nearly always one.
	producers *persistent.Map[Ref, []producer]
}

// node is a Policy or a PolicySet.
type node struct {
	policy *Policy
	set    *Set
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

// graphEdit makes the next version of a Graph.
type graphEdit struct {
	nodes     *persistent.Edit[Ref, node]
	producers *persistent.Edit[Ref, []producer]
}

func (g *Graph) edit() *graphEdit { return &graphEdit{g.nodes.Edit(), g.producers.Edit()} }

func (e *graphEdit) graph() *Graph { return &Graph{e.nodes.Next, e.producers.Next} }

// set sets what a reference names; an empty node removes it.
func (e *graphEdit) set(ref Ref, now node) {
	if before, _ := e.nodes.Next.Get(ref); before.policy != nil {
		before.policy.produces(func(object Ref, _ int) {
			found, _ := e.producers.Next.Get(object)
			found = slices.DeleteFunc(slices.Clone(found), func(m producer) bool { return m.policy == before.policy })
			if e.producers.Remove(object); len(found) > 0 {
				e.producers.Set(object, found)
			}
		})
	}
	if e.nodes.Remove(ref); now != (node{}) {
		e.nodes.Set(ref, now)
	}
	if now.policy == nil {
		return
	}
	now.policy.produces(func(object Ref, template int) {
		found, _ := e.producers.Next.Get(object)
		one := producer{now.policy, template}
		at, _ := slices.BinarySearchFunc(found, one, func(a, b producer) int {
			return cmp.Or(a.policy.Ref().Compare(b.policy.Ref()), cmp.Compare(a.template, b.template))
		})
		e.producers.Set(object, slices.Insert(slices.Clip(found), at, one))
	})
}

func (g *Graph) with(ref Ref, now node) *Graph {
	if g == nil {
		g = &Graph{}
	}
	e := g.edit()
	e.set(ref, now)
	return e.graph()
}

// WithPolicy returns the graph with a Policy added or replaced.
func (g *Graph) WithPolicy(p *Policy) *Graph { return g.with(p.Ref(), node{policy: p}) }

// WithSet returns the graph with a PolicySet added or replaced.
func (g *Graph) WithSet(s *Set) *Graph { return g.with(s.Ref(), node{set: s}) }

// Without returns the graph without a Policy or a PolicySet.
func (g *Graph) Without(ref Ref) *Graph { return g.with(ref, node{}) }

func (g *Graph) node(ref Ref) (n node) {
	if g != nil {
		n, _ = g.nodes.Get(ref)
	}
	return n
}

// Policy returns a Policy, or nil.
func (g *Graph) Policy(namespace, name string) *Policy {
	return g.node(PolicyRef(namespace, name)).policy
}

// Set returns a PolicySet, or nil.
func (g *Graph) Set(namespace, name string) *Set { return g.node(SetRef(namespace, name)).set }

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
	n := g.node(from)
	if p := n.policy; p != nil && !p.Disabled {
		for i := range p.Templates {
			if !p.Templates[i].IgnorePending {
				add(p.Templates[i].Dependencies)
			}
		}
	}
	if n.set != nil {
		for _, name := range n.set.Policies {
			to = append(to, PolicyRef(from.Namespace, name))
		}
	}
	return to
}

// maxVisits bounds the objects that the search for a cycle visits.
const maxVisits = 20_000

// Cycle returns a shortest path from an object back to itself along its dependencies; the first and last element are
// from. It is nil if there is none.
func (g *Graph) Cycle(from Ref) []Ref {
	visits := maxVisits
	return g.cycle(from, &visits)
}

// cycle is Cycle with the number of objects that may be visited, which it reduces.
func (g *Graph) cycle(from Ref, visits *int) []Ref {
	cameFrom := map[Ref]Ref{}
	for queue := []Ref{from}; len(queue) > 0 && *visits > 0; queue = queue[1:] {
		*visits--
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
func (g *Graph) PolicyCycle(namespace, name string) []Ref {
	visits := maxVisits // of all templates together: a hostile Policy can have hundreds
	shortest := g.cycle(PolicyRef(namespace, name), &visits)
	p := g.Policy(namespace, name)
	if shortest != nil || p == nil || p.Disabled {
		return shortest
	}
	for i := range p.Templates {
		if t := &p.Templates[i]; t.Readable && len(t.Dependencies) > 0 {
			if c := g.cycle(t.Ref, &visits); c != nil && (shortest == nil || len(c) < len(shortest)) {
				shortest = c
			}
		}
	}
	return shortest
}

// maxSteps bounds the objects of a cycle that a message shows.
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
