package rules

import (
	"fmt"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/rules/constraint"
)

// DecodeSubscription reads the JSON of a Subscription.
func DecodeSubscription(raw []byte) (*Subscription, error) { return decodeObject[Subscription](raw) }

// DecodePlan reads the JSON of an InstallPlan; one with more values than maxPlanValues is an error.
func DecodePlan(raw []byte) (*InstallPlan, error) {
	if n := constraint.CountValues(raw); n > maxPlanValues {
		return nil, fmt.Errorf("the InstallPlan holds %d values, at most %d are read", n, maxPlanValues)
	}
	return decodeObject[InstallPlan](raw)
}

func decodeObject[T any](raw []byte) (*T, error) {
	into := new(T)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, into); err != nil {
		return nil, fmt.Errorf("decode %T: %w", *into, err)
	}
	return into, nil
}

// DecodeCSV reads the JSON of a ClusterServiceVersion.
func DecodeCSV(raw []byte) (*CSV, error) { return decodeObject[CSV](raw) }

// Installed is what the ClusterServiceVersion tells of what is installed; here is false for a copy that OLM made of
// one that is installed in another namespace, and for a virtual operator, which installs nothing. A CSV whose
// properties do not parse is installed all the same, of a package that is not known.
func (c *CSV) Installed() (installed Installed, here bool) {
	c.Spec.keepContents()
	installed.CSV, installed.spec = c.Metadata.Name, &c.Spec
	if properties := c.Metadata.Annotations.Properties; properties != "" {
		if bundle, err := ParseBundle(properties); err == nil {
			installed.Package, installed.Version = bundle.Package, bundle.Version
			installed.Properties, installed.Described = bundle.Properties, true
		}
	}
	return installed, c.Metadata.Labels.CopiedFrom == "" && !c.virtualOperator()
}

// Cluster collects objects of any number of namespaces and sorts them into Namespaces.
type Cluster struct {
	// Constraints are put into every Namespace.
	Constraints *constraint.Set

	contents map[string]*NamespaceContents
}

// AddNamespace adds what is known of a namespace itself.
func (c *Cluster) AddNamespace(name string, labels map[string]string, deleting bool) {
	n := c.namespace(name)
	n.Exists, n.Labels, n.Deleting = true, labels, deleting
}

// AddPolicy adds a policy to the namespace that it concerns.
func (c *Cluster) AddPolicy(p *Policy) {
	n := c.namespace(p.Concerns())
	n.Policies = append(n.Policies, p)
}

// AddSubscription adds a Subscription.
func (c *Cluster) AddSubscription(s *Subscription) {
	n := c.namespace(s.Metadata.Namespace)
	n.Subscriptions = append(n.Subscriptions, s)
}

// AddPlan adds an InstallPlan.
func (c *Cluster) AddPlan(p *InstallPlan) {
	n := c.namespace(p.Metadata.Namespace)
	n.Plans = append(n.Plans, p)
}

// AddOperatorGroup adds an OperatorGroup.
func (c *Cluster) AddOperatorGroup(g *OperatorGroup) {
	n := c.namespace(g.Metadata.Namespace)
	n.Groups = append(n.Groups, g)
}

// AddCSV adds an installed ClusterServiceVersion.
func (c *Cluster) AddCSV(namespace string, installed Installed) {
	n := c.namespace(namespace)
	n.CSVs = append(n.CSVs, installed)
}

func (c *Cluster) namespace(name string) *NamespaceContents {
	if c.contents == nil {
		c.contents = map[string]*NamespaceContents{}
	}
	if c.contents[name] == nil {
		c.contents[name] = &NamespaceContents{}
	}
	return c.contents[name]
}

// Namespaces gives every namespace that something was added to.
func (c *Cluster) Namespaces() map[string]*Namespace {
	namespaces := make(map[string]*Namespace, len(c.contents))
	for name, contents := range c.contents {
		contents.Constraints = c.Constraints
		namespaces[name] = NewNamespace(name, *contents)
	}
	return namespaces
}
