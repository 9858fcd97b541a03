package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicyStatus is what was observed when the policy was last evaluated.
// ---
// Source: the public Policy API; from ObservedGeneration on, additions of Opgate.
//
// +kubebuilder:pruning:PreserveUnknownFields
type PolicyStatus struct {
	// The overall outcome: NonCompliant if any template is, else Pending if any
	// template waits, else Compliant. Absent while the state of a template is not
	// known and nothing worse is.
	//
	// +kubebuilder:validation:Enum=Compliant;Pending;NonCompliant
	// +optional
	ComplianceState ComplianceState `json:"compliant,omitempty"`

	// The outcome of each template, in the order of spec.policy-templates.
	//
	// +kubebuilder:validation:MaxItems=500
	// +listType=atomic
	// +optional
	Details []*DetailsPerTemplate `json:"details,omitempty"`

	// The outcome on each cluster. Written by a hub only, and kept.
	//
	// +listType=atomic
	// +optional
	Status []*CompliancePerClusterStatus `json:"status,omitempty"`

	// The clusters that the policy is for. Written by a hub only, and kept.
	//
	// +listType=atomic
	// +optional
	Placement []*Placement `json:"placement,omitempty"`

	// The metadata.generation that this status describes. If it is less than the
	// policy's generation, the latest change has not been evaluated yet.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The condition Compliant is True if the policy is Compliant, False if it is
	// NonCompliant or Pending, and Unknown if it cannot be determined; its message names
	// the templates that the outcome comes from.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// What the templates wait for, sorted. At most 20 are listed; all are counted
	// in pendingDependencies.
	//
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	// +optional
	Dependencies []DependencyStatus `json:"dependencies,omitempty"`

	// How many different dependencies the templates wait for.
	//
	// +optional
	PendingDependencies int `json:"pendingDependencies,omitempty"`
}

// DetailsPerTemplate is the outcome of one template.
// ---
// Source: the public Policy API; Dependencies is an addition of Opgate.
type DetailsPerTemplate struct {
	// Which template: metadata.name is the name of its object, or template- and
	// its place in the list, from 0, if the object's name cannot be determined.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	TemplateMeta metav1.ObjectMeta `json:"templateMeta,omitzero"`

	// The outcome: Compliant, NonCompliant or Pending. Absent if it is not known.
	// ---
	// Without an enum, as in the public API: a refused status write would hide everything else in the status.
	//
	// +optional
	ComplianceState ComplianceState `json:"compliant,omitempty"`

	// Whether the dependencies of an OperatorPolicy or a Constraint are met: Unsatisfied,
	// or Satisfied with a checksum of the dependencies that were met. Absent for templates
	// without dependencies and for other kinds. While it is anything but Satisfied for the
	// present dependencies, nothing is approved that the object is about.
	//
	// +optional
	Dependencies string `json:"dependencies,omitempty"`

	// The most recent messages, newest first, at most 10. The first one is about
	// the present state.
	//
	// +listType=atomic
	// +optional
	History []ComplianceHistory `json:"history,omitempty"`
}

// ComplianceHistory is one message about a template.
// ---
// Source: the public Policy API. Seconds and fractions of a second are both read; seconds are written, as there.
type ComplianceHistory struct {
	// When the message was reported.
	//
	// +optional
	LastTimestamp metav1.Time `json:"lastTimestamp,omitzero"`

	// The message, beginning with the state, as in "Pending; ...".
	//
	// +optional
	Message string `json:"message,omitempty"`

	// The name of the event that the message came from. Opgate reads the state
	// from the objects and leaves it out.
	//
	// +optional
	EventName string `json:"eventName,omitempty"`
}

// DependencyStatus is a dependency that is not met.
type DependencyStatus struct {
	// The API version of the object, as the policy has it.
	//
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// The kind of the object.
	//
	// +required
	Kind string `json:"kind"`

	// The namespace in which the object was looked for. Absent if its kind has no
	// namespaces.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// The name of the object.
	//
	// +required
	Name string `json:"name"`

	// The state that is wanted.
	//
	// +required
	Compliance ComplianceState `json:"compliance"`

	// The state that was seen. Absent if none was.
	// ---
	// Without an enum: it is whatever the object says.
	//
	// +optional
	State ComplianceState `json:"state,omitempty"`

	// Why the dependency is not met: NotFound, NoKind (no such kind is served),
	// NoStatus (the object does not say its state), WrongState, Forbidden (Opgate
	// may not read the object), Stale (the object has been changed and not been
	// evaluated since), TooMany (it is beyond what Opgate watches for the Policy,
	// its namespace or all Policies) or NotRead (nothing is known of it yet).
	// ---
	// Without an enum, so that a later release can add a reason.
	//
	// +required
	Reason string `json:"reason"`

	// More about the reason.
	//
	// +optional
	Message string `json:"message,omitempty"`

	// The names of templates that wait for it, at most 5.
	//
	// +kubebuilder:validation:MaxItems=5
	// +listType=atomic
	// +optional
	Templates []string `json:"templates,omitempty"`
}

// CompliancePerClusterStatus is the outcome on one cluster.
// ---
// Source: the public Policy API.
//
// +kubebuilder:pruning:PreserveUnknownFields
type CompliancePerClusterStatus struct {
	// The outcome: Compliant, NonCompliant or Pending.
	//
	// +optional
	ComplianceState ComplianceState `json:"compliant,omitempty"`

	// The name of the cluster.
	//
	// +optional
	ClusterName string `json:"clustername,omitempty"`

	// The namespace of the cluster on the hub.
	//
	// +optional
	ClusterNamespace string `json:"clusternamespace,omitempty"`

	// The bindings that place the policy there although its set excludes it.
	//
	// +listType=atomic
	// +optional
	RemainingBindings []RemainingBinding `json:"remainingBindings,omitempty"`
}

// RemainingBinding names a binding.
// ---
// Source: the public Policy API.
type RemainingBinding struct {
	// The PlacementBinding.
	//
	// +optional
	PlacementBinding string `json:"placementBinding,omitempty"`
}

// Placement says how a policy was given to clusters.
// ---
// Source: the public Policy API.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Placement struct {
	// The PlacementBinding that binds the policy or its set.
	//
	// +optional
	PlacementBinding string `json:"placementBinding,omitempty"`

	// The PlacementRule, if one is bound.
	//
	// +optional
	PlacementRule string `json:"placementRule,omitempty"`

	// The Placement, if one is bound.
	//
	// +optional
	Placement string `json:"placement,omitempty"`

	// The clusters that were chosen.
	//
	// +listType=atomic
	// +optional
	Decisions []PlacementDecision `json:"decisions,omitempty"`

	// The PolicySet that was bound, if it was not the policy itself.
	//
	// +optional
	PolicySet string `json:"policySet,omitempty"`

	// The clusters that the set excludes.
	//
	// +listType=atomic
	// +optional
	Exclusions []PolicyExclusion `json:"exclusions,omitempty"`
}

// PolicyExclusion names a cluster that a set excludes.
// ---
// Source: the public Policy API.
type PolicyExclusion struct {
	// The name of the cluster.
	//
	// +optional
	ClusterName string `json:"clusterName,omitempty"`
}

// PlacementDecision is a cluster that was chosen.
// ---
// Source: the public Policy API.
type PlacementDecision struct {
	// The name of the cluster.
	//
	// +optional
	ClusterName string `json:"clusterName,omitempty"`

	// The namespace of the cluster on the hub.
	//
	// +optional
	ClusterNamespace string `json:"clusterNamespace,omitempty"`
}
