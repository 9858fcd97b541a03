package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ComplianceState is the outcome for a policy or for one object it looked at.
type ComplianceState string

// Values of ComplianceState.
const (
	Compliant    ComplianceState = "Compliant"
	NonCompliant ComplianceState = "NonCompliant"
	// Pending is for a policy that waits for another one.
	Pending ComplianceState = "Pending"
	// Terminating is for a policy that is being deleted.
	Terminating ComplianceState = "Terminating"
	// Inapplicable is for related objects only: nothing of that kind was there to
	// judge.
	Inapplicable ComplianceState = "Inapplicable"
)

// OperatorPolicyStatus is what was observed when the policy was last
// evaluated.
type OperatorPolicyStatus struct {
	// The overall outcome: Compliant, NonCompliant, Pending (the policy waits for
	// something it depends on) or Terminating (the policy is being deleted).
	// Absent until the policy was first evaluated.
	//
	// +kubebuilder:validation:Enum=Compliant;Pending;NonCompliant;Terminating
	// +optional
	Compliant ComplianceState `json:"compliant,omitempty"`

	// The metadata.generation that this status describes. If it is less than the
	// policy's generation, the latest change has not been evaluated yet.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The findings, one for each type. Those whose type ends in Compliant are True
	// when all is well; CatalogSourcesUnhealthy is False when all is well. The
	// condition Compliant sums up the others.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The objects that the policy looked at, each with its own outcome. A
	// NonCompliant object does not always make the policy NonCompliant: see
	// spec.complianceConfig.
	// ---
	// omitzero, not omitempty: "evaluated, and nothing related" is written as an empty list.
	//
	// +listType=atomic
	// +optional
	RelatedObjects []RelatedObject `json:"relatedObjects,omitzero"`

	// The Subscription that the policy resolved to, as <name>.<namespace>, cut to
	// 63 characters.
	//
	// +optional
	ResolvedSubscriptionLabel string `json:"resolvedSubscriptionLabel,omitempty"`

	// The enforced policies that manage the same Subscription, this one included,
	// each as <name>.<namespace>. Empty if there is no overlap. While it is not
	// empty, none of them acts.
	//
	// +listType=atomic
	// +optional
	OverlappingPolicies []string `json:"overlappingPolicies,omitempty"`

	// When Opgate will step in, or stepped in, to repair a Subscription that lost
	// track of its installed ClusterServiceVersion.
	//
	// +optional
	SubscriptionInterventionTime *metav1.Time `json:"subscriptionInterventionTime,omitempty"`

	// The most recent compliance messages, newest first.
	//
	// +listType=atomic
	// +optional
	History []HistoryEvent `json:"history,omitempty"`

	// The name of the ClusterServiceVersion that is installed for the package.
	// Absent if none is.
	// ---
	// An addition of Opgate, for the printer column Installed. The background loop writes it.
	//
	// +optional
	InstalledVersion string `json:"installedVersion,omitempty"`

	// The ClusterServiceVersion that waits for approval and, in parentheses, what
	// for: the first rule that holds it and how many more do, or a user. Absent if
	// none waits.
	// ---
	// An addition of Opgate, for the printer column Waiting.
	//
	// +optional
	Waiting string `json:"waiting,omitempty"`

	// The latest end of an exception of the spec that has ended, as in RFC 3339.
	// None that ends then or before counts again, whatever the clock of a replica
	// says. At most one.
	// ---
	// An addition of Opgate.
	//
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	EndedExceptions []string `json:"endedExceptions,omitempty"`
}

// RelatedObject is an object that a policy looked at, and what it found.
type RelatedObject struct {
	// The object. Its name is "-" if no particular object was meant.
	//
	// +required
	Object ObjectReference `json:"object"`

	// The outcome for this object: Compliant, NonCompliant, or Inapplicable if
	// there was nothing to judge. Absent for an object that is kept because
	// spec.removalBehavior says so.
	// ---
	// Without an enum: readers and writers of other releases use further words here, and a refused
	// status write would hide everything else in the status.
	//
	// +optional
	Compliant ComplianceState `json:"compliant,omitempty"`

	// A short explanation of the outcome.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// More about the object.
	//
	// +optional
	Properties *ObjectProperties `json:"properties,omitempty"`

	// The name of the cluster that the object is in.
	//
	// +optional
	Cluster string `json:"cluster,omitempty"`
}

// ObjectReference names an object.
type ObjectReference struct {
	// The API version of the object, such as operators.coreos.com/v1alpha1.
	//
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// The kind of the object, such as Subscription.
	//
	// +optional
	Kind string `json:"kind,omitempty"`

	// The name and namespace of the object.
	//
	// +optional
	Metadata ObjectMetadata `json:"metadata,omitzero"`
}

// ObjectMetadata is the name and namespace of an object.
type ObjectMetadata struct {
	// The name of the object.
	//
	// +optional
	Name string `json:"name,omitempty"`

	// The namespace of the object. Absent for a cluster-scoped object.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ObjectProperties says more about a related object.
type ObjectProperties struct {
	// True if the policy created the object. Absent if it was there before.
	//
	// +optional
	CreatedByPolicy *bool `json:"createdByPolicy,omitempty"`

	// The UID of the object.
	//
	// +optional
	UID string `json:"uid,omitempty"`
}

// HistoryEvent is one compliance message of the past.
// ---
// The shape is that of the existing OperatorPolicy controller, which tools read.
type HistoryEvent struct {
	// When the message was reported.
	//
	// +required
	LastTimestamp metav1.MicroTime `json:"lastTimestamp"`

	// The message, beginning with "Compliant; " or "NonCompliant; ".
	//
	// +required
	Message string `json:"message"`
}
