package rules

import (
	"fmt"

	kjson "sigs.k8s.io/json"
)

// DecodeSubscription reads the JSON of a Subscription.
func DecodeSubscription(raw []byte) (*Subscription, error) { return decodeObject[Subscription](raw) }

// DecodePlan reads the JSON of an InstallPlan.
func DecodePlan(raw []byte) (*InstallPlan, error) { return decodeObject[InstallPlan](raw) }

func decodeObject[T any](raw []byte) (*T, error) {
	into := new(T)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, into); err != nil {
		return nil, fmt.Errorf("decode %T: %w", *into, err)
	}
	return into, nil
}

// DecodeCSV reads what counts of the JSON of a ClusterServiceVersion; here is false for a copy that OLM
// made of one that is installed in another namespace. A CSV whose properties do not parse is installed
// all the same, of a package that is not known.
func DecodeCSV(raw []byte) (namespace string, installed Installed, here bool, err error) {
	csv, err := decodeObject[struct {
		Metadata ObjectMeta `json:"metadata"`
	}](raw)
	if err != nil {
		return "", Installed{}, false, err
	}
	installed.CSV = csv.Metadata.Name
	if properties := csv.Metadata.Annotations.Properties; properties != "" {
		if bundle, err := ParseBundle(properties); err == nil {
			installed.Package, installed.Version = bundle.Package, bundle.Version
		}
	}
	return csv.Metadata.Namespace, installed, csv.Metadata.Labels.CopiedFrom == "", nil
}

// Cluster collects objects of any number of namespaces and sorts them into Namespaces.
type Cluster struct {
	contents map[string]*NamespaceContents
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
		namespaces[name] = NewNamespace(name, *contents)
	}
	return namespaces
}
