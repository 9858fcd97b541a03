package dependency

import (
	"maps"
	"slices"
)

// Graph is the dependency graph of Policies and PolicySets. It is immutable; nil is an empty one.
//
// A changed Graph shares nearly all of its data with the one that it was made from: a few changes are kept beside a
// shared index, and merged into a new index once there are many.
type Graph struct {
	all *index
	// changes has nil entries for deleted objects.
	changes index
}

// maxChanges bounds the changes that are kept beside the index.
const maxChanges = 32

type key struct{ namespace, name string }

// index finds Policies, PolicySets and templates by name.
type index struct {
	policies map[key]*Policy
	sets     map[key]*Set
	// producers are the templates by the object that they create; nearly always one.
	producers map[Ref][]producer
}

// producer is one template of a Policy.
type producer struct {
	policy   *Policy
	template int
}

// NewGraph returns the graph of Policies and PolicySets.
func NewGraph(policies []*Policy, sets []*Set) *Graph {
	all := &index{policies: make(map[key]*Policy, len(policies)), sets: make(map[key]*Set, len(sets))}
	for _, p := range policies {
		all.policies[key{p.Namespace, p.Name}] = p
	}
	for _, s := range sets {
		all.sets[key{s.Namespace, s.Name}] = s
	}
	all.producers = producersOf(all.policies)
	return &Graph{all: all}
}

func producersOf(policies map[key]*Policy) map[Ref][]producer {
	producers := make(map[Ref][]producer, len(policies))
	for _, p := range policies {
		if p == nil {
			continue
		}
		for i := range p.Templates {
			if t := &p.Templates[i]; t.Readable {
				producers[t.Ref] = append(producers[t.Ref], producer{p, i})
			}
		}
		if p.HidesTemplates {
			every := OperatorPolicyRef(p.Namespace, anyName)
			producers[every] = append(producers[every], producer{policy: p})
		}
	}
	return producers
}

// WithPolicy returns the graph with a Policy added or replaced.
func (g *Graph) WithPolicy(p *Policy) *Graph {
	return g.changed(key{p.Namespace, p.Name}, p)
}

// WithoutPolicy returns the graph without a Policy.
func (g *Graph) WithoutPolicy(namespace, name string) *Graph {
	return g.changed(key{namespace, name}, nil)
}

// WithSet returns the graph with a PolicySet added or replaced.
func (g *Graph) WithSet(s *Set) *Graph {
	return g.changedSet(key{s.Namespace, s.Name}, s)
}

// WithoutSet returns the graph without a PolicySet.
func (g *Graph) WithoutSet(namespace, name string) *Graph {
	return g.changedSet(key{namespace, name}, nil)
}

func (g *Graph) changed(k key, p *Policy) *Graph {
	next := g.copied()
	next.changes.policies = with(next.changes.policies, k, p)
	next.changes.producers = producersOf(next.changes.policies)
	return next.merged()
}

func (g *Graph) changedSet(k key, s *Set) *Graph {
	next := g.copied()
	next.changes.sets = with(next.changes.sets, k, s)
	return next.merged()
}

func (g *Graph) copied() *Graph {
	if g == nil {
		return NewGraph(nil, nil)
	}
	next := *g
	return &next
}

func with[T any](changes map[key]T, k key, v T) map[key]T {
	next := make(map[key]T, len(changes)+1)
	maps.Copy(next, changes)
	next[k] = v
	return next
}

// merged merges the changes into a new index once there are many.
func (g *Graph) merged() *Graph {
	if len(g.changes.policies)+len(g.changes.sets) <= maxChanges {
		return g
	}
	all := &index{policies: replaced(g.all.policies, g.changes.policies), sets: replaced(g.all.sets, g.changes.sets)}
	all.producers = producersOf(all.policies)
	return &Graph{all: all}
}

func replaced[T any](all, changes map[key]*T) map[key]*T {
	next := maps.Clone(all)
	for k, v := range changes {
		if v == nil {
			delete(next, k)
			continue
		}
		next[k] = v
	}
	return next
}

// Policy returns a Policy, or nil.
func (g *Graph) Policy(namespace, name string) *Policy {
	if g == nil {
		return nil
	}
	k := key{namespace, name}
	if p, changed := g.changes.policies[k]; changed {
		return p
	}
	return g.all.policies[k]
}

// Set returns a PolicySet, or nil.
func (g *Graph) Set(namespace, name string) *Set {
	if g == nil {
		return nil
	}
	k := key{namespace, name}
	if s, changed := g.changes.sets[k]; changed {
		return s
	}
	return g.all.sets[k]
}

// producers returns the templates that create an object, in a stable order.
func (g *Graph) producers(r Ref) []producer {
	if g == nil {
		return nil
	}
	found := g.all.producers[r]
	if len(found) > 0 && len(g.changes.policies) > 0 {
		found = slices.DeleteFunc(slices.Clone(found), func(m producer) bool {
			_, changed := g.changes.policies[key{m.policy.Namespace, m.policy.Name}]
			return changed
		})
	}
	found = append(slices.Clip(found), g.changes.producers[r]...)
	if len(found) > 1 {
		found = slices.Clone(found)
		slices.SortFunc(found, func(a, b producer) int {
			if c := a.policy.Ref().Compare(b.policy.Ref()); c != 0 {
				return c
			}
			return a.template - b.template
		})
	}
	return found
}
