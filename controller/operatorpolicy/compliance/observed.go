package compliance

import (
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// Input is all that evaluating a policy needs: the policy and what was observed of its namespace. Nothing
// in it is changed.
type Input struct {
	// Policy is the policy with template text resolved and its namespace filled in, as far as that is known.
	Policy *policyv1beta2.OperatorPolicy
	// Rules is the same policy made ready for judging.
	Rules *rules.Policy
	// Problems are why the policy could not be completed, such as template text that does not resolve. A
	// policy with problems is not valid, and nothing is done for it.
	Problems []string
	// Overlaps are the enforced policies that govern the same package in the same namespace, this one
	// included, as <name>.<namespace> and sorted; empty where there is none but this one.
	Overlaps []string
	// Cluster names the cluster in related objects. It may be empty.
	Cluster string

	// NamespaceExists tells whether the namespace of the operator exists.
	NamespaceExists bool
	// Namespace is the snapshot that admission judges by; its plans are those that count here.
	Namespace *rules.Namespace
	// OperatorGroups, Subscriptions and CSVs are all those of the operator's namespace, sorted by name.
	// CSVs include copies.
	OperatorGroups []OperatorGroup
	Subscriptions  []Subscription
	CSVs           []CSV
	// CRDs are those that OLM labelled as the operator's, sorted by name.
	CRDs []Object
	// Deployments are those of the operator's namespace, by name.
	Deployments map[string]Deployment
	// CatalogSource gives a CatalogSource, or nil where there is none.
	CatalogSource func(olm.Catalog) *CatalogSource
	// Package gives what a catalog says of the policy's package; a zero catalog, or one with a part left
	// open, stands for any that has it. It gives nil where that is not known (yet): PackageManifests cannot
	// be watched, and the server of them may be absent.
	Package func(olm.Catalog) *catalog.Package
	// Approvals are what became, a moment ago, of the plans that the rules let the loop approve, by plan name.
	Approvals map[string]Approval
	// Escaped has a sentence for each ClusterServiceVersion that was installed while Opgate was not running and that the policy does not allow.
	Escaped []string

	Now time.Time
}

// Object is the identity of an object on the cluster.
type Object struct {
	Namespace, Name, UID string
	Labels, Annotations  map[string]string
	// Created is its creationTimestamp, as RFC 3339 in UTC.
	Created string
	// Owned tells whether it has ownerReferences.
	Owned bool
	// Deleting tells whether it has a deletionTimestamp.
	Deleting bool
	// Content is the whole object as it is stored, for those that may be changed; nil for the others.
	Content map[string]any
}

// OperatorGroup is operators.coreos.com/v1 OperatorGroup. Its spec is in Content.
type OperatorGroup struct {
	Object
	GenerateName string
}

// Subscription is operators.coreos.com/v1alpha1 Subscription. Its spec as a whole is in Content.
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

// SubscriptionCondition is one of status.conditions of a Subscription.
type SubscriptionCondition struct {
	Type, Status, Reason, Message string
	LastTransitionTime            time.Time
}

// CSV is operators.coreos.com/v1alpha1 ClusterServiceVersion.
type CSV struct {
	Object
	Phase, Reason, Message string
	// Package and Version come from the bundle's properties; empty where there are none.
	Package, Version string
	// CopiedFrom is the namespace that this is a copy from, "" for one that is installed here.
	CopiedFrom string
	// Origin is what CopiedFrom names, for copies of the policy's package; nil where nothing of the copy's name is there.
	Origin *Origin
	// Deployments are the names in the install strategy.
	Deployments []string
	// InstallModes are the supported ones, such as AllNamespaces; nil where the CSV lists none at all.
	InstallModes map[string]bool
}

// Deployment is what counts of an apps/v1 Deployment.
type Deployment struct {
	Object
	// Available tells whether the Deployment, in its present generation, has all its replicas available.
	Available bool
}

// CatalogSource is what counts of an operators.coreos.com/v1alpha1 CatalogSource.
type CatalogSource struct {
	Object
	// State is status.connectionState.lastObservedState, such as READY; "" where nothing was observed yet.
	State string
}

// Approval says what became of a plan that the rules let the loop approve.
type Approval struct {
	// Done tells whether the approval is stored.
	Done bool
	// Problem is why it is not.
	Problem string
	// Blockers say which ClusterServiceVersions of the plan keep it from being approved, and why, as whole
	// sentences; empty where none does.
	Blockers []rules.Blocker
}
