package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Text below a line of three dashes is for readers of the Go code;
// controller-gen leaves it out of the CRD.

// ConstraintSpec is what operators must satisfy, and what the cluster offers.
// ---
// Requirement R-CO-2.
//
// Unknown fields are kept, so that the webhook refuses them by name: a misspelt "constraints" that vanished
// would be a restriction that silently does not exist. The limits of length count characters, which are never more than
// bytes: the webhook counts bytes, of both strings together.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ConstraintSpec struct {
	// What every operator must satisfy that is installed or upgraded anywhere in
	// the cluster: text that holds a JSON list. Each element is an object with
	// type "olm.constraint" and a value.
	//
	// The value is either a rule, with "rule" (CEL that returns a boolean),
	// "message" (what a refusal says), "messageExpression" (CEL that returns
	// the message, optional), "evaluator" ({"id": "cel"}, optional) and "action"
	// ({"id": "require"}, the default, refuses; {"id": "warn"} only warns), or
	// one of OLM's own constraints, with "failureMessage" and one of "cel",
	// "package", "gvk", "all", "any" and "not".
	//
	// At most 65,536 bytes for each element, and 1,048,576 bytes for both fields
	// of the spec together. Optional; without it nothing is asked of operators.
	// ---
	// The second form is that of github.com/operator-framework/api/pkg/constraints.
	//
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	Constraints string `json:"constraints,omitempty"`

	// What the cluster offers to operators, which their own constraints may ask
	// for: text that holds a JSON list. Each element is an object with a type (any
	// text that is not empty) and a value (any JSON), as in
	// [{"type": "olm.label", "value": {"label": "secured"}}].
	//
	// At most 1,048,576 bytes for both fields of the spec together. Optional.
	//
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	Properties string `json:"properties,omitempty"`

	// Operators for which spec.constraints is set aside until a time, each with a
	// reason. Optional, at most 32. To add one, or to prolong or widen one, needs
	// the verb override on this Constraint; to remove or shorten one does not. What
	// would have been refused is a warning that names the exception. One that has
	// ended has no effect.
	// ---
	// An addition of Opgate.
	//
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	Exceptions []Exception `json:"exceptions,omitempty"`
}

// Exception sets a Constraint aside for some versions until a time.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Exception struct {
	// The ClusterServiceVersions that the exception is for: by exact name, or by
	// name and digest of the bundle image, such as etcdoperator.v0.9.4@sha256: and
	// 64 hexadecimal digits. Required; at most 32 names in all.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +required
	Versions []string `json:"versions"`

	// The namespaces in which the exception counts. Optional; absent, all.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=atomic
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`

	// Why, for warnings, events and the status. Required; at most 256 characters.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +required
	Reason string `json:"reason"`

	// When the exception ends, as in RFC 3339: 2026-12-15T00:00:00Z, or with an
	// offset. Required.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +required
	Expires string `json:"expires"`
}

// Constraint says what every operator must satisfy that comes to the cluster,
// and what the cluster offers to operators.
// ---
// Requirement R-CO-1. The kind is that of the proposal's example, "Constraint", not the "constraint" of its
// definition: the two contradict each other.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=constraints,singular=constraint,scope=Cluster,shortName=constraint
// +kubebuilder:metadata:labels="policy.open-cluster-management.io/policy-type=template"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the constraints and properties can be applied"
// +kubebuilder:printcolumn:name="Violating",type=integer,JSONPath=`.status.violating`,description="How many installed operators do not satisfy a constraint"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Constraint struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// What operators must satisfy, and what the cluster offers. Required.
	//
	// +required
	Spec ConstraintSpec `json:"spec"`

	// What was observed on the cluster. Written by Opgate.
	//
	// +optional
	Status ConstraintStatus `json:"status,omitzero"`
}

// ConstraintList is a list of Constraints.
//
// +kubebuilder:object:root=true
type ConstraintList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Constraint `json:"items"`
}
