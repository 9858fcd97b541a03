package dependency

import (
	"slices"
	"strconv"
	"strings"
)

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
	for _, m := range g.producers(from) {
		if !m.policy.Disabled {
			add(m.policy.Templates[m.template].Dependencies)
		}
	}
	switch {
	case from.IsPolicy():
		p := g.Policy(from.Namespace, from.Name)
		if p == nil || p.Disabled {
			break
		}
		for i := range p.Templates {
			if !p.Templates[i].IgnorePending {
				add(p.Templates[i].Dependencies)
			}
		}
	case from.IsSet():
		if s := g.Set(from.Namespace, from.Name); s != nil {
			for _, name := range s.Policies {
				to = append(to, PolicyRef(s.Namespace, name))
			}
		}
	}
	return to
}

// Cycle returns a shortest path from an object back to itself along its dependencies; the first and last element are
// from. It is nil if there is none.
func (g *Graph) Cycle(from Ref) []Ref {
	cycle, _ := g.cycle(from)
	return cycle
}

// cycle searches breadth-first and also returns the objects that it reached: without a cycle through from, these are
// all that from waits for.
func (g *Graph) cycle(from Ref) (cycle []Ref, reached map[Ref]Ref) {
	cameFrom := map[Ref]Ref{}
	for queue := []Ref{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, next := range g.dependenciesOf(at) {
			if next == from {
				return trail(from, at, cameFrom), cameFrom
			}
			if _, seen := cameFrom[next]; !seen {
				cameFrom[next] = at
				queue = append(queue, next)
			}
		}
	}
	return nil, cameFrom
}

// trail is the path from an object to one that was reached from it, and back.
func trail(from, last Ref, cameFrom map[Ref]Ref) []Ref {
	way := []Ref{from}
	for at := last; at != from; at = cameFrom[at] {
		way = append(way, at)
	}
	way = append(way, from)
	slices.Reverse(way)
	return way
}

// PolicyCycle returns a short cycle that contains a Policy, or the object that one of its templates creates; nil if
// there is none. A template with ignorePending can wait for itself without its Policy waiting for it.
func (g *Graph) PolicyCycle(namespace, name string) []Ref {
	cycle, reached := g.cycle(PolicyRef(namespace, name))
	p := g.Policy(namespace, name)
	if cycle != nil || p == nil || p.Disabled {
		return cycle
	}
	// An object on a cycle is reached from its own dependencies. So the Policy reaches it, unless the Policy does not
	// depend on what the object depends on: with ignorePending, or where another Policy creates the object too.
	var starts []Ref
	suspect := false
	for i := range p.Templates {
		if t := &p.Templates[i]; t.Readable && len(t.Dependencies) > 0 {
			_, waitedFor := reached[t.Ref]
			suspect = suspect || waitedFor || t.IgnorePending || len(g.producers(t.Ref)) > 1
			starts = append(starts, t.Ref)
		}
	}
	if !suspect {
		return nil
	}
	const enough = 5 // each must be fixed, and a hostile Policy can have hundreds
	circles := g.cyclic(starts)
	for _, start := range circles[:min(len(circles), enough)] {
		if c := g.Cycle(start); c != nil && (cycle == nil || len(c) < len(cycle)) {
			cycle = c
		}
	}
	return cycle
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
