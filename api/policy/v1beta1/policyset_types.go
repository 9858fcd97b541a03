package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names under which the API server serves PolicySet.
const (
	// PolicySetKind is the kind of a single set.
	PolicySetKind = "PolicySet"
	// PolicySetResource is the plural that URLs, RBAC rules and the CRD use.
	PolicySetResource = "policysets"
)

// NonEmptyString is a string of at least one character, and of at most as many
// as the name of an object has.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
type NonEmptyString string

// PolicySetSpec says which policies belong to a set.
// ---
// Source: the public PolicySet API, as of governance-policy-propagator 19b1b7b. Fields that it gets later are kept.
//
// +kubebuilder:pruning:PreserveUnknownFields
type PolicySetSpec struct {
	// What the set is for.
	//
	// +optional
	Description string `json:"description,omitempty"`

	// The names of policies in the namespace of the set. Required; it may be
	// empty.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +required
	Policies []NonEmptyString `json:"policies"`

	// Which policies a hub does not copy to which clusters. Not used here.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	Exclusions []PolicySetExclusion `json:"exclusions,omitempty"`
}

// PolicySetExclusion names the clusters to which a hub does not copy a policy of a set.
// ---
// Source: the public PolicySet API.
//
// +kubebuilder:pruning:PreserveUnknownFields
type PolicySetExclusion struct {
	// The name of the policy. Required.
	//
	// +required
	PolicyName NonEmptyString `json:"policyName"`

	// Why.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// The names of the clusters. Required.
	//
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +required
	ClusterNames []NonEmptyString `json:"clusterNames"`
}

// PolicySetStatus is what was observed when the set was last evaluated.
// ---
// Source: the public PolicySet API; from ObservedGeneration on, additions of Opgate.
//
// +kubebuilder:pruning:PreserveUnknownFields
type PolicySetStatus struct {
	// The outcome: NonCompliant if any policy of the set is, else Pending if any
	// is, else Compliant. Absent while the state of a policy is not known, or a
	// policy does not exist, and nothing worse is known. Policies that are
	// switched off do not count.
	// ---
	// Without an enum, as in the public API.
	//
	// +optional
	Compliant string `json:"compliant,omitempty"`

	// What stands in the way: which policies are Pending, switched off, without a
	// state, or missing.
	//
	// +optional
	StatusMessage string `json:"statusMessage,omitempty"`

	// The placements that the set is bound to. Written by a hub only, and kept.
	//
	// +listType=atomic
	// +optional
	Placement []PolicySetStatusPlacement `json:"placement,omitempty"`

	// What a hub does not copy to which clusters. Written by a hub only, and kept.
	//
	// +listType=atomic
	// +optional
	Exclusions []PolicySetStatusExclusion `json:"exclusions,omitempty"`

	// The metadata.generation that this status describes. If it is less than the
	// set's generation, the latest change has not been evaluated yet.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The condition Compliant is True if the set is Compliant, False if it is
	// NonCompliant or Pending, and Unknown if it cannot be determined.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PolicySetStatusPlacement says how a set was given to clusters.
// ---
// Source: the public PolicySet API.
//
// +kubebuilder:pruning:PreserveUnknownFields
type PolicySetStatusPlacement struct {
	// The PlacementBinding that binds the set.
	//
	// +optional
	PlacementBinding string `json:"placementBinding,omitempty"`

	// The Placement, if one is bound.
	//
	// +optional
	Placement string `json:"placement,omitempty"`

	// The PlacementRule, if one is bound.
	//
	// +optional
	PlacementRule string `json:"placementRule,omitempty"`
}

// PolicySetStatusExclusion names the clusters to which a hub did not copy a policy.
// ---
// Source: the public PolicySet API.
type PolicySetStatusExclusion struct {
	// The name of the policy.
	//
	// +optional
	PolicyName string `json:"policyName,omitempty"`

	// The names of the clusters.
	//
	// +listType=atomic
	// +optional
	Clusters []string `json:"clusters,omitempty"`
}

// PolicySet is a group of policies of one namespace, with one outcome for all
// of them.
// ---
// It is the PolicySet of the public API, and may be Pending.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=policysets,singular=policyset,scope=Namespaced,shortName=plcset,categories=opgate
// +kubebuilder:printcolumn:name="Compliance state",type=string,JSONPath=`.status.compliant`,description="Whether the cluster is as the policies of the set ask, or one of them waits"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PolicySet struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Which policies belong to the set. Required.
	//
	// +required
	Spec PolicySetSpec `json:"spec"`

	// What was observed on the cluster. Written by Opgate.
	//
	// +optional
	Status PolicySetStatus `json:"status,omitzero"`
}

// PolicySetList is a list of sets.
//
// +kubebuilder:object:root=true
type PolicySetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []PolicySet `json:"items"`
}
