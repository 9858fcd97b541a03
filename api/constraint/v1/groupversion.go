package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names under which the API server serves Constraint.
const (
	// Group is the API group, which is also that of OLM's own kinds.
	Group = "operators.coreos.com"
	// Version is the version of this package.
	Version = "v1"
	// Kind is the kind of a single Constraint.
	Kind = "Constraint"
	// Resource is the plural that URLs, RBAC rules and the CRD use.
	Resource = "constraints"
)

var (
	// GroupVersion identifies this package's API.
	GroupVersion = schema.GroupVersion{Group: Group, Version: Version}

	// SchemeBuilder collects the functions that register the types of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the types of this package in a scheme. OLM's types of the same group and version, such as
	// OperatorGroup, may be registered in it as well.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Constraint{}, &ConstraintList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
