package rules

import (
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// Cluster collects objects of the cluster and of any number of namespaces, and groups the latter by Namespace.
type Cluster struct {
	// Facts are those of every Namespace. Facts and Definitions are the input of constraint.NewSet.
	Facts       facts.Cluster
	Definitions []*constraint.Definition
	// Graph suspends what is added later. Default: nothing is suspended but by its annotation.
	Graph *dependency.Graph
	// Constraints are set in every Namespace.
	Constraints *constraint.Set
	// Packages are those of every Namespace.
	Packages state.Packages
	// Changes are those of every Namespace.
	Changes state.Changes
	// Everywhere are the policies with AnyNamespace, which are in every Namespace.
	Everywhere []*operatorpolicy.Policy

	contents map[string]*state.NamespaceContents
}

// AddConstraint adds a Constraint.
func (c *Cluster) AddConstraint(d *constraint.Definition) {
	if policy, waits := c.Graph.Suspending(dependency.ConstraintRef(d.Name)); policy != "" {
		suspended := *d
		suspended.Pending, suspended.Waits = policy, waits
		d = &suspended
	}
	c.Definitions = append(c.Definitions, d)
}

// AddNamespace adds a namespace's own UID, labels and state.
func (c *Cluster) AddNamespace(name, uid string, labels map[string]string, deleting bool) {
	n := c.namespace(name)
	n.Exists, n.UID, n.Labels, n.Deleting = true, uid, labels, deleting
}

// AddRecord adds what is recorded of what was installed in a namespace.
func (c *Cluster) AddRecord(r *state.InstallRecord) { c.namespace(r.Namespace).Record = r }

// AddPolicy adds a policy to the namespace that it governs, or to every namespace.
func (c *Cluster) AddPolicy(p *operatorpolicy.Policy) {
	n := c.namespace(p.Concerns())
	n.Policies = append(n.Policies,
		p.SuspendedBy(c.Graph.Suspending(dependency.OperatorPolicyRef(p.Namespace, p.Name))))
	if p.AnyNamespace {
		c.Everywhere = append(c.Everywhere, p)
	}
}

// AddSubscription adds a Subscription.
func (c *Cluster) AddSubscription(s *olm.Subscription) {
	n := c.namespace(s.Metadata.Namespace)
	n.Subscriptions = append(n.Subscriptions, s)
}

// AddPlan adds an InstallPlan.
func (c *Cluster) AddPlan(p *olm.InstallPlan) {
	n := c.namespace(p.Metadata.Namespace)
	n.Plans = append(n.Plans, p)
}

// AddOperatorGroup adds an OperatorGroup.
func (c *Cluster) AddOperatorGroup(g *olm.OperatorGroup) {
	n := c.namespace(g.Metadata.Namespace)
	n.Groups = append(n.Groups, g)
}

// AddCSV adds a ClusterServiceVersion, with its Bundle.
func (c *Cluster) AddCSV(csv *olm.CSV) {
	n := c.namespace(csv.Metadata.Namespace)
	if n.Stored = append(n.Stored, csv); state.InstallsOperator(csv) {
		n.CSVs = append(n.CSVs, state.Installed{Bundle: csv.Bundle, UID: csv.Metadata.UID})
	}
}

// AddNotUpgradeable adds why a ClusterServiceVersion must not be replaced now.
func (c *Cluster) AddNotUpgradeable(namespace, csv, why string) {
	n := c.namespace(namespace)
	if n.NotUpgradeable == nil {
		n.NotUpgradeable = map[string]string{}
	}
	n.NotUpgradeable[csv] = why
}

func (c *Cluster) namespace(name string) *state.NamespaceContents {
	if c.contents == nil {
		c.contents = map[string]*state.NamespaceContents{}
	}
	if c.contents[name] == nil {
		c.contents[name] = &state.NamespaceContents{}
	}
	return c.contents[name]
}

// Namespaces returns every namespace with at least one object.
func (c *Cluster) Namespaces() map[string]*state.Namespace {
	namespaces, facts := make(map[string]*state.Namespace, len(c.contents)), c.Facts
	for name, contents := range c.contents {
		contents.Facts, contents.Constraints = &facts, c.Constraints
		if name != "" { // which has them already
			contents.Policies = append(contents.Policies, c.Everywhere...)
		}
		namespaces[name] = carrier.Read(state.NewNamespace(name, *contents), c.Packages, c.Changes)
	}
	return namespaces
}
