package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/api/policy/v1beta2"
)

// Version is the version of this package; group, kind and resource are those of v1beta2.
const Version = "v1beta1"

var (
	// GroupVersion identifies this package's API.
	GroupVersion = schema.GroupVersion{Group: v1beta2.Group, Version: Version}

	// SchemeBuilder collects the functions that register the types of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the types of this package in a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &OperatorPolicy{}, &OperatorPolicyList{}, &PolicySet{}, &PolicySetList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
