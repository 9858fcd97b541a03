package dependency

import "slices"

// cyclic returns those of some objects that are part of a cycle, one per strongly connected component. It is Tarjan's
// algorithm with an explicit stack: a chain of Policies may be longer than the goroutine stack allows.
func (g *Graph) cyclic(starts []Ref) []Ref {
	c := components{graph: g, number: map[Ref]int{}, low: map[Ref]int{}, open: map[Ref]bool{},
		wanted: make(map[Ref]bool, len(starts))}
	for _, r := range starts {
		c.wanted[r] = true
	}
	for _, r := range starts {
		if c.number[r] == 0 {
			c.visit(r)
		}
	}
	return c.found
}

// components is the state of the traversal.
type components struct {
	graph *Graph
	// number is the order of discovery, from 1; low is the lowest number that an object leads back to.
	number, low map[Ref]int
	// stack holds the objects whose component is not complete; open reports whether an object is on it.
	stack []Ref
	open  map[Ref]bool
	// wanted are the objects to check, found those of them that are on a cycle.
	wanted map[Ref]bool
	found  []Ref
}

// step is one object on the path from the start to the current object.
type step struct {
	at Ref
	to []Ref
}

func (c *components) visit(start Ref) {
	way := []step{c.enter(start)}
	for len(way) > 0 {
		top := &way[len(way)-1]
		if len(top.to) == 0 {
			c.leave(top.at)
			low := c.low[top.at]
			if way = way[:len(way)-1]; len(way) > 0 {
				above := way[len(way)-1].at
				c.low[above] = min(c.low[above], low)
			}
			continue
		}
		next := top.to[0]
		top.to = top.to[1:]
		switch {
		case c.number[next] == 0:
			way = append(way, c.enter(next))
		case c.open[next]:
			c.low[top.at] = min(c.low[top.at], c.number[next])
		}
	}
}

func (c *components) enter(r Ref) step {
	n := len(c.number) + 1
	c.number[r], c.low[r] = n, n
	c.stack, c.open[r] = append(c.stack, r), true
	return step{r, c.graph.dependenciesOf(r)}
}

// leave pops a complete component off the stack.
func (c *components) leave(r Ref) {
	if c.low[r] != c.number[r] {
		return
	}
	var first *Ref
	size := 0
	for closed := false; !closed; size++ {
		at := c.stack[len(c.stack)-1]
		c.stack = c.stack[:len(c.stack)-1]
		delete(c.open, at)
		if c.wanted[at] {
			first = &at
		}
		closed = at == r
	}
	if first == nil {
		return
	}
	if size == 1 && !slices.Contains(c.graph.dependenciesOf(*first), *first) {
		return
	}
	c.found = append(c.found, *first)
}
