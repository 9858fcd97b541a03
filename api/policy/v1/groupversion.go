package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names under which the API server serves Policy.
const (
	// Group is the API group of every policy kind.
	Group = "policy.open-cluster-management.io"
	// Version is the version of this package.
	Version = "v1"
	// Kind is the kind of a single policy.
	Kind = "Policy"
	// Resource is the plural that URLs, RBAC rules and the CRD use.
	Resource = "policies"
)

// GroupVersion identifies this package's API.
var GroupVersion = schema.GroupVersion{Group: Group, Version: Version}

// AddToScheme registers the types of this package in a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Policy{}, &PolicyList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
