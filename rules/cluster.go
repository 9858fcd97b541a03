package rules

import (
	"cmp"
	"iter"
	"slices"
	"time"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// Cluster collects what is judged by: what is known of the cluster, or the objects of one namespace.
type Cluster struct {
	// Facts and Definitions are the input of constraint.NewSet.
	Facts       facts.Cluster
	Definitions []*constraint.Definition
	// Graph suspends what is added later. Default: nothing is suspended but by its annotation. With Unsuspended that
	// holds as well, and the graph only shows what is waited for.
	Graph       *dependency.Graph
	Unsuspended bool

	contents *state.NamespaceContents
}

// suspending returns the Policy that suspends an object with this annotation, and what it waits for.
func (c *Cluster) suspending(object dependency.Ref, pending string) (policy, waits string) {
	if policy, waits = c.Graph.Suspending(object); c.Unsuspended && policy != pending {
		return "", ""
	}
	return policy, waits
}

// AddConstraint adds a Constraint.
func (c *Cluster) AddConstraint(d *constraint.Definition) {
	if policy, waits := c.suspending(dependency.ConstraintRef(d.Name), d.Pending); policy != "" {
		suspended := *d
		suspended.Pending, suspended.Waits = policy, waits
		d = &suspended
	}
	c.Definitions = append(c.Definitions, d)
}

// AddPolicy adds a policy that governs something in the namespace.
func (c *Cluster) AddPolicy(p *operatorpolicy.Policy) {
	n := c.Contents()
	n.Policies = append(n.Policies,
		p.SuspendedBy(c.suspending(dependency.OperatorPolicyRef(p.Namespace, p.Name), p.Pending)))
}

// AddCSV adds a ClusterServiceVersion, with its Bundle.
func (c *Cluster) AddCSV(csv *olm.CSV) {
	n := c.Contents()
	if n.Stored = append(n.Stored, csv); state.InstallsOperator(csv) {
		n.CSVs = append(n.CSVs, state.Installed{Bundle: csv.Bundle, UID: csv.Metadata.UID})
	}
}

// Contents returns what is known of the namespace, to be added to.
func (c *Cluster) Contents() *state.NamespaceContents {
	if c.contents == nil {
		c.contents = &state.NamespaceContents{}
	}
	return c.contents
}

// Namespace returns the namespace, on a cluster with these Constraints; nil if nothing was added. Everywhere are the
// policies that hold in every namespace.
func (c *Cluster) Namespace(name string, constraints *constraint.Set, everywhere []*operatorpolicy.Policy) *state.Namespace {
	if c.contents == nil {
		return nil
	}
	facts := c.Facts
	c.contents.Facts, c.contents.Constraints = &facts, constraints
	c.contents.Policies = append(c.contents.Policies, everywhere...)
	return state.NewNamespace(name, *c.contents)
}

const (
	// MaxViolators bounds the violators that are listed of one Constraint.
	MaxViolators = 20
	// maxViolation bounds the message of each, in bytes.
	maxViolation = 512
)

// Tally counts the installed operators that satisfy Constraints, and those that do not.
type Tally struct {
	// Installed is the number of operators; one that is installed in two namespaces counts twice.
	Installed int

	missed map[*constraint.Constraint]*missed
}

// missed has what does not satisfy one constraint, and the first violators.
type missed struct {
	constraintv1.ConstraintCount
	violators []constraintv1.ConstraintViolator
}

// compareViolators sorts by namespace, then name.
func compareViolators(a, b constraintv1.ConstraintViolator) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ClusterServiceVersion, b.ClusterServiceVersion))
}

// NewTally counts everything that is installed in namespaces at a time, in one pass for all Constraints. What an
// exception sets aside counts as satisfied.
func NewTally(namespaces iter.Seq[*state.Namespace], now time.Time) *Tally {
	t := &Tally{missed: map[*constraint.Constraint]*missed{}}
	for ns := range namespaces {
		for i := range ns.Installed() {
			t.Installed++
			// A budget for each: counting is not part of a request with a deadline.
			for _, f := range ns.Constraints().Judge(ns.Installed()[i].ForConstraints(ns), ns.ForConstraints(),
				constraint.NewBudget(nil)) {
				c := &ns.Installed()[i]
				// In a Constraint that cannot be read nothing is counted.
				if f.Constraint != nil && !ns.ExceptionsOf(f.Definition, c.Package, c.Catalog).
					ForName(bundle.RuleConstraint, c.Name, ns.Name(), now) {
					t.add(ns.Name(), c.Name, &f)
				}
			}
		}
	}
	return t
}

func (t *Tally) add(namespace, csv string, f *constraint.Result) {
	m := t.missed[f.Constraint]
	if m == nil {
		m = &missed{}
		t.missed[f.Constraint] = m
	}
	if f.Outcome != constraint.Violated {
		m.Unknown++
		return
	}
	m.Violating++
	v := constraintv1.ConstraintViolator{Namespace: namespace, ClusterServiceVersion: csv,
		Message: text.Truncate(state.MustSatisfy(f), maxViolation)}
	// namespaces are counted in no particular order
	if at, _ := slices.BinarySearchFunc(m.violators, v, compareViolators); at < MaxViolators {
		m.violators = slices.Insert(m.violators, at, v)
		m.violators = m.violators[:min(len(m.violators), MaxViolators)]
	}
}

// Violators returns the first violators of a Constraint, at most MaxViolators, by namespace, name and constraint. The
// message is that of the constraint and what must be satisfied.
func (t *Tally) Violators(d *constraint.Definition) []constraintv1.ConstraintViolator {
	var all []constraintv1.ConstraintViolator
	for _, c := range d.Constraints {
		if m := t.missed[c]; m != nil {
			all = append(all, m.violators...)
		}
	}
	slices.SortStableFunc(all, compareViolators)
	return all[:min(len(all), MaxViolators)]
}

// Of returns the counts of one Constraint, one for each of its constraints, without messages.
func (t *Tally) Of(d *constraint.Definition) []constraintv1.ConstraintCount {
	counts := make([]constraintv1.ConstraintCount, len(d.Constraints))
	for i, c := range d.Constraints {
		if m := t.missed[c]; m != nil {
			counts[i] = m.ConstraintCount
		}
		counts[i].Index, counts[i].Field = c.Index, c.Path
		counts[i].Satisfied = t.Installed - counts[i].Violating - counts[i].Unknown
	}
	return counts
}
