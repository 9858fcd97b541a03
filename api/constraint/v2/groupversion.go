package v2

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
	Version = "v2"
	// Kind is the kind of a single Constraint.
	Kind = "Constraint"
	// Resource is the plural that URLs, RBAC rules and the CRD use.
	Resource = "constraints"
)

// GroupVersion identifies this package's API.
var GroupVersion = schema.GroupVersion{Group: Group, Version: Version}

// AddToScheme registers the types of this package in a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Constraint{}, &ConstraintList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
