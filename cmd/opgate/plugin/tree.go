package plugin

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

const treeLong = `Show PolicySets with their Policies, what each Policy applies, and what it waits for. Nothing is written.

States are those in the statuses. Each Policy is expanded once: where it comes again, the line ends in "(above)". A
Policy that waits for itself is shown with the cycle, and not followed round it.

The output in the formats of "kubectl get" is

  {"apiVersion", "kind", "nodes": [{"id", "kind", "namespace", "name", "state", "fault", "cycle": ["Policy a/b", ...]}],
   "edges": [{"from", "to", "relation": "member"|"applies"|"waits", "want", "unmet"}]}

in which unmet says why a dependency is not met, and is empty for one that is.

Exit codes:
  0  the tree was shown, even if it is empty
  2  the command line cannot be used, or the cluster cannot be read`

const treeExample = `  # all of it
  kubectl opgate tree -A

  # that of one namespace
  kubectl opgate tree -n policies`

func treeCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "tree",
		Short:   "Show Policies, PolicySets and what they wait for",
		Long:    treeLong,
		Example: treeExample,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			state, err := o.read(cmd.Context(), cmd.ErrOrStderr(),
				cluster.Options{Kinds: []*snapshot.Kind{snapshot.Policies, snapshot.PolicySets}})
			if err != nil {
				return err
			}
			return printTree(cmd.OutOrStdout(), cmd.ErrOrStderr(), &o.output, graphOf(state.Snapshot, o.namespace))
		},
	}
	o.registerAll(cmd)
	o.register(cmd)
	return cmd
}

// treeKind is the kind of the data, which is no object of a cluster.
var treeKind = schema.GroupVersionKind{Group: "opgate.io", Version: "v1", Kind: "PolicyTree"}

// graph is what tree shows.
type graph struct {
	Nodes []*node `json:"nodes"`
	Edges []*link `json:"edges"`

	byRef map[dependency.Ref]*node
	// from are the edges by the ID that they begin at.
	from map[string][]*link
}

// node is an object.
type node struct {
	ID        string `json:"id"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     string `json:"state"`
	// Fault is why a template cannot be applied, or a Policy not be read.
	Fault string `json:"fault,omitempty"`
	// Cycle is a path from a Policy back to itself.
	Cycle []string `json:"cycle,omitempty"`

	ref dependency.Ref
	// root is set for what the tree begins with.
	root bool
}

// The relations of edges.
const (
	isMember = "member"
	applies  = "applies"
	waitsFor = "waits"
)

// link is an edge.
type link struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Relation string `json:"relation"`
	Want     string `json:"want,omitempty"`
	Unmet    string `json:"unmet,omitempty"`

	to *node
}

// graphOf returns the graph of Policies and PolicySets, of one namespace or of all, with what these refer to.
func graphOf(s *snapshot.Snapshot, namespace string) *graph {
	g := &graph{Nodes: []*node{}, Edges: []*link{}, byRef: map[dependency.Ref]*node{}, from: map[string][]*link{}}
	sets, policies := sorted(s, snapshot.PolicySets, namespace), sorted(s, snapshot.Policies, namespace)
	for _, o := range sets {
		n := g.node(dependency.SetRef(o.Namespace, o.Name))
		n.root = true
		if set := o.PolicySet().Known(); set != nil {
			n.State = string(set.State)
			for _, name := range set.Policies {
				g.link(n, g.node(dependency.PolicyRef(o.Namespace, name)), isMember)
			}
		} else {
			n.Fault = "it cannot be decoded"
		}
	}
	for _, o := range policies {
		n := g.node(dependency.PolicyRef(o.Namespace, o.Name))
		n.root = true
		if p := o.Policy().Known(); p != nil {
			g.policy(n, p)
			n.Cycle = shortened(s.Graph().PolicyCycle(o.Namespace, o.Name))
		} else {
			n.Fault = "it cannot be decoded"
		}
	}
	for _, n := range g.Nodes {
		if n.State == "" && n.Fault == "" {
			n.State = stateOf(s.Graph(), n.ref)
		}
	}
	return g
}

// maxCycle bounds the objects of a cycle that are named: every Policy on it shows it.
const maxCycle = 12

// shortened returns the names of a cycle, without the middle of a long one.
func shortened(cycle []dependency.Ref) []string {
	var names []string
	for i, r := range cycle {
		if len(cycle) > maxCycle && i == maxCycle/2 {
			names = append(names, fmt.Sprintf("(%d more)", len(cycle)-maxCycle))
		}
		if len(cycle) <= maxCycle || i < maxCycle/2 || i >= len(cycle)-maxCycle/2 {
			names = append(names, r.String())
		}
	}
	return names
}

func sorted(s *snapshot.Snapshot, kind *snapshot.Kind, namespace string) []*snapshot.Object {
	objects := slices.DeleteFunc(s.Objects(kind, snapshot.InCluster()), func(o *snapshot.Object) bool {
		return namespace != "" && o.Namespace != namespace || o.Policy() == nil && o.PolicySet() == nil
	})
	slices.SortFunc(objects, func(a, b *snapshot.Object) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return objects
}

// stateOf returns the state of a Policy or a PolicySet, "NotFound" for one that does not exist, and "" for objects of
// other kinds.
func stateOf(g *dependency.Graph, r dependency.Ref) string {
	switch {
	case r.IsPolicy() && g.Policy(r.Namespace, r.Name) == nil, r.IsSet() && g.Set(r.Namespace, r.Name) == nil:
		return string(dependency.NotFound)
	case r.IsPolicy():
		return string(g.Policy(r.Namespace, r.Name).State)
	case r.IsSet():
		return string(g.Set(r.Namespace, r.Name).State)
	}
	return ""
}

// node returns the node of an object.
func (g *graph) node(r dependency.Ref) *node {
	n := g.byRef[r]
	if n == nil {
		n = &node{ID: fmt.Sprintf("n%d", len(g.Nodes)), Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, ref: r}
		g.byRef[r] = n
		g.Nodes = append(g.Nodes, n)
	}
	return n
}

func (g *graph) link(from, to *node, relation string) *link {
	l := &link{From: from.ID, To: to.ID, Relation: relation, to: to}
	g.Edges = append(g.Edges, l)
	g.from[from.ID] = append(g.from[from.ID], l)
	return l
}

// policy adds what a Policy applies, and what it waits for: what all of its templates wait for, and what only one does.
func (g *graph) policy(n *node, p *dependency.Policy) {
	n.State = string(p.State)
	if p.Disabled {
		n.State = "disabled"
	}
	own := map[dependency.Ref]bool{}
	for i := range p.Templates {
		t := &p.Templates[i]
		if !t.Readable {
			n.Fault = strings.TrimPrefix(n.Fault+"; template "+t.Name+": "+t.Fault, "; ")
			continue
		}
		made := g.node(t.Ref)
		g.link(n, made, applies)
		made.Fault = cmp.Or(made.Fault, t.Fault)
		for _, d := range t.Dependencies {
			from := made
			if strings.HasPrefix(d.Path, "spec.dependencies") {
				if own[d.Ref] {
					continue
				}
				own[d.Ref], from = true, n
			}
			l := g.link(from, g.node(d.Ref), waitsFor)
			l.Want, l.Unmet = string(d.Want), unmet(p, d)
		}
	}
}

// unmet returns why a dependency is not met, according to the status of the Policy; "" if it is.
func unmet(p *dependency.Policy, d *dependency.Dependency) string {
	for i := range p.PendingDependencies {
		if w := &p.PendingDependencies[i]; w.Ref == d.Ref {
			return cmp.Or(string(w.State), string(w.Reason))
		}
	}
	return ""
}

func printTree(out, stderr io.Writer, format *output, g *graph) error {
	if format.printer != nil {
		return format.item(out, treeKind, types.NamespacedName{}, g)
	}
	if len(g.Nodes) == 0 {
		fmt.Fprintln(stderr, "there is no Policy and no PolicySet")
		return nil
	}
	return g.text(out)
}

// title is the name of a node, with its state.
func (n *node) title() string {
	title := n.ref.String()
	if n.State != "" {
		title += " (" + text.Escape(n.State) + ")"
	}
	return title
}

// maxDepth bounds the depth of the tree, and with it the length of its lines. What is deeper is shown as a tree of its
// own.
const maxDepth = 24

// walk prints a graph as trees.
type walk struct {
	*graph
	*cli.Printer
	// expanded are the nodes of which the children have been printed.
	expanded map[*node]bool
}

// text prints the sets first, then the Policies that are not yet part of a tree.
func (g *graph) text(out io.Writer) error {
	w := &walk{graph: g, Printer: cli.NewPrinter(out), expanded: map[*node]bool{}}
	for _, sets := range []bool{true, false} {
		for _, n := range g.Nodes {
			if n.root && n.ref.IsSet() == sets && !w.expanded[n] {
				w.Line(0, w.label(n))
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
		w.branch(prefix, last < 0 && n.Cycle == nil, cli.Cell{Text: "cannot be applied: " + n.Fault, Color: cli.Red})
	}
	if n.Cycle != nil {
		w.branch(prefix, last < 0, cli.Cell{Text: "waits for itself: " + strings.Join(n.Cycle, " -> "),
			Color: cli.Red})
	}
	for i, l := range links {
		below := w.branch(prefix, i == last, w.describe(l, depth)...)
		if w.follows(l, depth) {
			w.children(l.to, below, depth+1)
		}
	}
}

// branch prints a line of the tree and returns the prefix of what is below it.
func (w *walk) branch(prefix string, last bool, cells ...cli.Cell) string {
	connector, below := "├── ", "│   "
	if last {
		connector, below = "└── ", "    "
	}
	fmt.Fprint(w, prefix+connector) // not escaped: these are the only characters that are not ASCII
	w.Line(0, cells...)
	return prefix + below
}

// follows reports whether the children of a link are printed below it.
func (w *walk) follows(l *link, depth int) bool {
	return !w.expanded[l.to] && depth < maxDepth && (len(w.from[l.to.ID]) > 0 || l.to.Fault != "" || l.to.Cycle != nil)
}

func (w *walk) describe(l *link, depth int) []cli.Cell {
	label := w.label(l.to)
	switch {
	case w.expanded[l.to] && len(w.from[l.to.ID]) > 0:
		label.Text += " (above)"
	case depth >= maxDepth && len(w.from[l.to.ID]) > 0:
		label.Text += " (below)"
	}
	switch {
	case l.Relation == applies:
		return []cli.Cell{cli.Plain("applies "), label}
	case l.Relation != waitsFor:
		return []cli.Cell{label}
	case l.Unmet == "":
		return []cli.Cell{cli.Plain("after "), label, cli.Plain(wanted(l))}
	}
	return []cli.Cell{cli.Plain("waits for "), label, {Text: wanted(l) + ", is " + l.Unmet, Color: cli.Yellow}}
}

// wanted says in which state an object has to be.
func wanted(l *link) string {
	if l.Want == "" {
		return ""
	}
	return ": want " + l.Want
}

func (w *walk) label(n *node) cli.Cell {
	color := ""
	switch n.State {
	case string(dependency.Compliant):
		color = cli.Green
	case string(dependency.Pending):
		color = cli.Yellow
	case string(dependency.NonCompliant), string(dependency.NotFound):
		color = cli.Red
	}
	return cli.Cell{Text: n.title(), Color: color}
}
