package plugin

import (
	"fmt"
	"io"
	"strings"

	"github.com/opgate/opgate/rules/dependency"
)

// maxDepth bounds the depth of the tree, and with it the length of its lines. What is deeper is shown as a tree of its
// own.
const maxDepth = 24

// walk prints a graph as trees.
type walk struct {
	*graph
	*printer
	// expanded are the nodes of which the children have been printed.
	expanded map[*node]bool
}

// text prints the sets first, then the Policies that are not yet part of a tree.
func (g *graph) text(out io.Writer) error {
	w := &walk{graph: g, printer: newPrinter(out), expanded: map[*node]bool{}}
	for _, sets := range []bool{true, false} {
		for _, n := range g.Nodes {
			if n.root && n.ref.IsSet() == sets && !w.expanded[n] {
				w.line(0, w.label(n))
				w.children(n, "", 1)
			}
		}
	}
	return w.Flush()
}

// children prints what a node refers to, below a prefix, each on a line and with its own children.
func (w *walk) children(n *node, prefix string, depth int) {
	w.expanded[n] = true
	links := w.from[n.ID]
	last := len(links) - 1
	if n.Fault != "" {
		w.branch(prefix, last < 0 && n.Cycle == nil, cell{"cannot be applied: " + n.Fault, red})
	}
	if n.Cycle != nil {
		w.branch(prefix, last < 0, cell{"waits for itself: " + strings.Join(n.Cycle, " -> "), red})
	}
	for i, l := range links {
		below := w.branch(prefix, i == last, w.describe(l, depth)...)
		if w.follows(l, depth) {
			w.children(l.to, below, depth+1)
		}
	}
}

// branch prints a line of the tree and returns the prefix of what is below it.
func (w *walk) branch(prefix string, last bool, cells ...cell) string {
	connector, below := "├── ", "│   "
	if last {
		connector, below = "└── ", "    "
	}
	fmt.Fprint(w, prefix+connector) // not escaped: these are the only characters that are not ASCII
	w.line(0, cells...)
	return prefix + below
}

// follows reports whether the children of a link are printed below it.
func (w *walk) follows(l *link, depth int) bool {
	return !w.expanded[l.to] && depth < maxDepth && (len(w.from[l.to.ID]) > 0 || l.to.Fault != "" || l.to.Cycle != nil)
}

func (w *walk) describe(l *link, depth int) []cell {
	label := w.label(l.to)
	switch {
	case w.expanded[l.to] && len(w.from[l.to.ID]) > 0:
		label.text += " (above)"
	case depth >= maxDepth && len(w.from[l.to.ID]) > 0:
		label.text += " (below)"
	}
	switch {
	case l.Relation == applies:
		return []cell{plain("applies "), label}
	case l.Relation != waitsFor:
		return []cell{label}
	case l.Unmet == "":
		return []cell{plain("after "), label, plain(wanted(l))}
	}
	return []cell{plain("waits for "), label, {wanted(l) + ", is " + l.Unmet, yellow}}
}

// wanted says in which state an object has to be.
func wanted(l *link) string {
	if l.Want == "" {
		return ""
	}
	return ": want " + l.Want
}

func (w *walk) label(n *node) cell {
	color := ""
	switch n.State {
	case string(dependency.Compliant):
		color = green
	case string(dependency.Pending):
		color = yellow
	case string(dependency.NonCompliant), string(dependency.NotFound):
		color = red
	}
	return cell{n.title(), color}
}
