package compliance

import (
	"slices"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// Input is everything that evaluating a policy needs: the policy and the observed state of its namespace. It is
// not modified.
type Input struct {
	// Policy is the policy with resolved template text and its namespace set, as far as these are known.
	Policy *policyv1beta2.OperatorPolicy
	// Rules is the same policy, prepared for judging.
	Rules *operatorpolicy.Policy
	// Problems are why the policy could not be completed, such as template text that does not resolve. A
	// policy with problems is not valid, and nothing is done for it.
	Problems []string
	// Overlaps are the enforced policies that govern the same package in the same namespace, including this one,
	// as <name>.<namespace> and sorted; empty if there is only this one.
	Overlaps []string
	// Cluster names the cluster in related objects. It may be empty.
	Cluster string

	// Grants are the rights that the installation withholds.
	Grants grant.Set
	// Key is that of the marks of what policies create; empty while there is none.
	Key []byte
	// Unverified is a sentence on the rights of the policy's author; empty if they were verified.
	Unverified string
	// Namespace is that of the operator, as admission judges by it.
	Namespace *state.Namespace
	// Originals are ClusterServiceVersions in other namespaces that serve this one without a copy. Origins are the
	// contents of their namespaces, and of those of copies here, for the policy's package; none where the original does
	// not exist.
	Originals []*olm.CSV
	Origins   map[*olm.CSV]*Origin
	// Before are the Subscriptions of the related objects in the status that exist.
	Before []*olm.Subscription
	// CRDs are those that OLM labelled as the operator's, sorted by name.
	CRDs []CRD
	// OLMv1 reports whether the cluster serves ClusterExtensions, and Opgate may read them. Migrated are those objects
	// of OLM v1 that show that it manages the policy's operator, sorted by kind and name.
	OLMv1    bool
	Migrated []*olm.Migrated
	// Deployments are those of the operator's namespace, by name.
	Deployments map[string]Deployment
	// CatalogSource returns a CatalogSource, or nil if it does not exist.
	CatalogSource func(olm.Catalog) *olm.CatalogSource
	// Catalogs are all CatalogSources, sorted by namespace and name.
	Catalogs []olm.Catalog
	// Package returns the policy's package in a catalog; a catalog with an empty name or namespace stands for
	// any that has the package. It returns nil if that is not known (yet): PackageManifests cannot
	// be watched, and their server may be absent.
	Package func(olm.Catalog) *catalog.Package
	// Approvals are the results for the plans that wait and were not approved, by plan name.
	Approvals map[string]Approval
	// Escaped has a sentence for each ClusterServiceVersion that was installed during an outage and that the policy
	// does not allow.
	Escaped []string

	Now time.Time
}

// namespaceExists reports whether the namespace of the operator exists, and stays.
func (in *Input) namespaceExists() bool { return in.Namespace.Exists() && !in.Namespace.Deleting() }

// csvs returns the ClusterServiceVersions of the namespace, sorted by name, and then the originals that serve it.
func (in *Input) csvs() []*olm.CSV { return slices.Concat(in.Namespace.CSVs(), in.Originals) }

// from returns the namespace of the original of a copy, or of an original without one; "" for what is installed here.
func (in *Input) from(c *olm.CSV) string {
	if c.Metadata.Namespace != in.Namespace.Name() {
		return c.Metadata.Namespace
	}
	return c.Metadata.Labels.CopiedFrom
}

// CRD is a CustomResourceDefinition.
type CRD struct {
	olm.ObjectMeta
	// Operators are OLM's labels for the operators that it belongs to.
	Operators []string
}

// Deployment is the relevant part of an apps/v1 Deployment.
type Deployment struct {
	olm.ObjectMeta
	// Available reports whether the Deployment, in its present generation, has all its replicas available.
	Available bool
	// Stalled reports whether the Deployment has exceeded its progress deadline.
	Stalled bool
}

// Approval is the result for a plan that waits and was not approved.
type Approval struct {
	// Problem is why a plan that may be approved is not.
	Problem string
	// Reasons are why it may or should not be approved, in the order of refusals.
	Reasons []verdict.Reason
	// Stale is why the plan cannot be what its Subscriptions ask for, and what ends that, as a sentence; "" if it can.
	Stale string
}
