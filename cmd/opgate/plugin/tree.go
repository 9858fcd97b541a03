package plugin

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

const treeLong = `Show PolicySets with their Policies, what each Policy applies, and what it waits for. Nothing is written.

States are those in the statuses. Each Policy is expanded once: where it comes again, the line ends in "(above)". A
Policy that waits for itself is shown with the cycle, and not followed round it.

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
			t := treeOf(state.Snapshot, o.namespace)
			if len(t.roots) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "there is no Policy and no PolicySet")
			}
			return t.print(cmd.OutOrStdout())
		},
	}
	o.registerAll(cmd)
	o.registerCluster(cmd)
	return cmd
}

// tree is what the Policies and PolicySets of one namespace, or of all, refer to.
type tree struct {
	graph *dependency.Graph
	roots []dependency.Ref
	links map[dependency.Ref][]link
	// faults are why a Policy cannot be read, a template not be applied, or a Policy waits for itself.
	faults map[dependency.Ref][]string
}

// link is what an object refers to: a member, what a Policy applies, or what it waits for.
type link struct {
	to   dependency.Ref
	verb string
	// state is what a dependency has to be and, if it is not met, what it is instead.
	state string
}

// treeOf returns the tree of Policies and PolicySets, of one namespace or of all.
func treeOf(s *snapshot.Snapshot, namespace string) *tree {
	t := &tree{graph: s.Graph(), links: map[dependency.Ref][]link{}, faults: map[dependency.Ref][]string{}}
	for _, o := range sorted(s, snapshot.PolicySets, namespace) {
		ref := dependency.SetRef(o.Namespace, o.Name)
		t.roots = append(t.roots, ref)
		if set := o.PolicySet().Known(); set != nil {
			for _, name := range set.Policies {
				t.links[ref] = append(t.links[ref], link{to: dependency.PolicyRef(o.Namespace, name)})
			}
		} else {
			t.faults[ref] = []string{"cannot be decoded"}
		}
	}
	for _, o := range sorted(s, snapshot.Policies, namespace) {
		ref := dependency.PolicyRef(o.Namespace, o.Name)
		t.roots = append(t.roots, ref)
		if p := o.Policy().Known(); p != nil {
			t.policy(ref, p)
		} else {
			t.faults[ref] = []string{"cannot be decoded"}
		}
		if cycle := s.Graph().PolicyCycle(o.Namespace, o.Name); cycle != nil {
			t.faults[ref] = append(t.faults[ref], "waits for itself: "+strings.Join(shortened(cycle), " -> "))
		}
	}
	return t
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

// policy adds what a Policy applies, and what it waits for: what all of its templates wait for, and what only one does.
func (t *tree) policy(ref dependency.Ref, p *dependency.Policy) {
	var own []link
	for i := range p.Templates {
		template := &p.Templates[i]
		made := template.Ref
		if !template.Readable {
			t.faults[ref] = append(t.faults[ref], "cannot be applied: template "+template.Name+": "+template.Fault)
			continue
		}
		t.links[ref] = append(t.links[ref], link{to: made, verb: "applies "})
		if template.Fault != "" && t.faults[made] == nil {
			t.faults[made] = []string{"cannot be applied: " + template.Fault}
		}
		for _, d := range template.Dependencies {
			l := waitsFor(p, d)
			switch {
			case !strings.HasPrefix(d.Path, "spec.dependencies"):
				t.links[made] = append(t.links[made], l)
			case !slices.Contains(own, l):
				own = append(own, l)
			}
		}
	}
	t.links[ref] = append(t.links[ref], own...)
}

// waitsFor returns the link of a dependency, which is met or not according to the status of the Policy.
func waitsFor(p *dependency.Policy, d *dependency.Dependency) link {
	l := link{to: d.Ref, verb: "after "}
	if d.Want != "" {
		l.state = ": want " + string(d.Want)
	}
	for i := range p.PendingDependencies {
		if w := &p.PendingDependencies[i]; dependency.PendingRef(w) == d.Ref {
			l.verb, l.state = "waits for ", l.state+", is "+cmp.Or(string(w.State), string(w.Reason))
			break
		}
	}
	return l
}

// label returns the name of an object with its state: that of its status, or "NotFound". Only Policies and PolicySets
// have one.
func (t *tree) label(r dependency.Ref) string {
	state, p, set := "", t.graph.Policy(r.Namespace, r.Name), t.graph.Set(r.Namespace, r.Name)
	switch {
	case r.IsPolicy() && p != nil && p.Disabled:
		state = "disabled"
	case r.IsPolicy() && p != nil:
		state = string(p.State)
	case r.IsSet() && set != nil:
		state = string(set.State)
	case (r.IsPolicy() || r.IsSet()) && t.faults[r] == nil:
		state = string(dependency.NotFound)
	}
	if state == "" {
		return r.String()
	}
	return r.String() + " (" + state + ")"
}

// maxDepth bounds the depth of the tree, and with it the length of its lines. What is deeper is shown as a tree of its
// own.
const maxDepth = 24

// drawing prints a tree.
type drawing struct {
	*tree
	*cli.Printer
	// expanded are the objects of which the links have been printed.
	expanded map[dependency.Ref]bool
}

// print prints the sets first, then the Policies that are not yet part of a tree.
func (t *tree) print(out io.Writer) error {
	d := &drawing{t, cli.NewPrinter(out), map[dependency.Ref]bool{}}
	for _, r := range t.roots {
		if !d.expanded[r] {
			d.Line(0, t.label(r))
			d.below(r, "", 1)
		}
	}
	return d.Flush()
}

// below prints the faults and the links of an object, each on a line and with its own.
func (d *drawing) below(r dependency.Ref, prefix string, depth int) {
	d.expanded[r] = true
	faults, links := d.faults[r], d.links[r]
	for i, fault := range faults {
		d.branch(prefix, len(links) == 0 && i == len(faults)-1, fault)
	}
	for i, l := range links {
		label, more := d.label(l.to), len(d.faults[l.to])+len(d.links[l.to]) > 0
		switch {
		case more && d.expanded[l.to]:
			label += " (above)"
		case more && depth >= maxDepth:
			label += " (below)"
		}
		next := d.branch(prefix, i == len(links)-1, l.verb+label+l.state)
		if more && !d.expanded[l.to] && depth < maxDepth {
			d.below(l.to, next, depth+1)
		}
	}
}

// branch prints a line of the tree and returns the prefix of what is below it.
func (d *drawing) branch(prefix string, last bool, line string) string {
	connector, below := "├── ", "│   "
	if last {
		connector, below = "└── ", "    "
	}
	fmt.Fprint(d, prefix+connector)
	d.Line(0, line)
	return prefix + below
}
