package compliance

import (
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// Input is everything that evaluating a policy needs: the policy and the observed state of its namespace. It is
// not modified.
type Input struct {
	// Policy is the policy with resolved template text and its namespace set, as far as these are known.
	Policy *policyv1beta2.OperatorPolicy
	// Rules is the same policy, prepared for judging.
	Rules *rules.OperatorPolicy
	// Problems are why the policy could not be completed, such as template text that does not resolve. A
	// policy with problems is not valid, and nothing is done for it.
	Problems []string
	// Overlaps are the enforced policies that govern the same package in the same namespace, including this one,
	// as <name>.<namespace> and sorted; empty if there is only this one.
	Overlaps []string
	// Cluster names the cluster in related objects. It may be empty.
	Cluster string

	// Grants are the rights that the installation withholds.
	Grants rules.Grants
	// NamespaceExists reports whether the namespace of the operator exists.
	NamespaceExists bool
	// Namespace is the snapshot that admission judges by; its plans are the ones evaluated here.
	Namespace *rules.Namespace
	// OperatorGroups, Subscriptions and CSVs are all those of the operator's namespace, sorted by name.
	// CSVs include copies, and originals in other namespaces that serve this one without a copy.
	OperatorGroups []OperatorGroup
	Subscriptions  []Subscription
	// Before are the Subscriptions of the related objects in the status that exist.
	Before []Subscription
	CSVs   []CSV
	// CRDs are those that OLM labelled as the operator's, sorted by name.
	CRDs []Object
	// Deployments are those of the operator's namespace, by name.
	Deployments map[string]Deployment
	// CatalogSource returns a CatalogSource, or nil if it does not exist.
	CatalogSource func(olm.Catalog) *CatalogSource
	// Catalogs are all CatalogSources, sorted by namespace and name.
	Catalogs []olm.Catalog
	// Package returns the policy's package in a catalog; a catalog with an empty name or namespace stands for
	// any that has the package. It returns nil if that is not known (yet): PackageManifests cannot
	// be watched, and their server may be absent.
	Package func(olm.Catalog) *catalog.Package
	// Approvals are the results for the plans that wait and were not approved, by plan name.
	Approvals map[string]Approval
	// Escaped has a sentence for each ClusterServiceVersion that was installed during an outage and that the policy does not allow.
	Escaped []string

	Now time.Time
}

// Object identifies an object on the cluster.
type Object struct {
	Namespace, Name, UID string
	Labels, Annotations  map[string]string
	// Created is its creationTimestamp, as RFC 3339 in UTC.
	Created string
	// Owned reports whether it has ownerReferences.
	Owned bool
	// Deleting reports whether it has a deletionTimestamp.
	Deleting bool
	// Content is the whole stored object if it may be changed; else nil.
	Content map[string]any
}

// OperatorGroup is operators.coreos.com/v1 OperatorGroup. Its spec is in Content.
type OperatorGroup struct {
	Object
	GenerateName string
}

// Subscription is operators.coreos.com/v1alpha1 Subscription. Its complete spec is in Content.
type Subscription struct {
	Object
	// Package is spec.name.
	Package                         string
	Channel, StartingCSV            string
	Catalog                         olm.Catalog
	InstalledCSV, CurrentCSV, State string
	// InstallPlan is the name in status.installPlanRef.
	InstallPlan string
	Conditions  []SubscriptionCondition
}

// SubscriptionCondition is an item of status.conditions of a Subscription.
type SubscriptionCondition struct {
	Type, Status, Reason, Message string
	LastTransitionTime            time.Time
}

// CSV is operators.coreos.com/v1alpha1 ClusterServiceVersion.
type CSV struct {
	Object
	Phase, Reason, Message string
	// Unmet are the first requirements that it does not meet, if that is the reason.
	Unmet []string
	// Package and Version come from the bundle's properties; empty if it has none.
	Package, Version string
	// CopiedFrom is the namespace of the original, "" for one that is installed here. It is Namespace for an original without a copy.
	CopiedFrom string
	// Origin is the contents of CopiedFrom, for copies and originals of the policy's package; nil if the original does not exist.
	Origin *Origin
	// Deployments are the names in the install strategy.
	Deployments []string
	// InstallModes are the supported ones, such as AllNamespaces; nil if the CSV lists none at all.
	InstallModes map[string]bool
}

// Deployment is the relevant part of an apps/v1 Deployment.
type Deployment struct {
	Object
	// Available reports whether the Deployment, in its present generation, has all its replicas available.
	Available bool
	// Stalled reports whether the Deployment has exceeded its progress deadline.
	Stalled bool
}

// CatalogSource is the relevant part of an operators.coreos.com/v1alpha1 CatalogSource.
type CatalogSource struct {
	Object
	// State is status.connectionState.lastObservedState, such as READY; "" if nothing was observed yet.
	State string
}

// Approval is the result for a plan that waits and was not approved.
type Approval struct {
	// Problem is why a plan that may be approved is not.
	Problem string
	// Reasons are why it may or should not be approved, in the order of refusals.
	Reasons []rules.Reason
	// Stale is why the plan cannot be what its Subscriptions ask for, and what ends that, as a sentence; "" if it can.
	Stale string
}
