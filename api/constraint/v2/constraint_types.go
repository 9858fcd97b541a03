package v2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
)

// GroupVersion identifies this package's API.
var GroupVersion = schema.GroupVersion{Group: constraintv1.Group, Version: "v2"}

// AddToScheme registers the types of this package in a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Constraint{}, &ConstraintList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// The spec and the status are those of v1, so that the two versions cannot come to differ.

// Constraint says what every operator must satisfy that comes to the cluster,
// and what the cluster offers to operators.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=constraints,singular=constraint,scope=Cluster,shortName=constraint,categories=opgate
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
	Spec constraintv1.ConstraintSpec `json:"spec"`

	// What was observed on the cluster. Written by Opgate.
	//
	// +optional
	Status constraintv1.ConstraintStatus `json:"status,omitzero"`
}

// ConstraintList is a list of Constraints.
//
// +kubebuilder:object:root=true
type ConstraintList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Constraint `json:"items"`
}
