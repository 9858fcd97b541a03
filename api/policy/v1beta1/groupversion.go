package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/api/policy/v1beta2"
)

// Version is the version of this package; group, kind and resource are those of v1beta2.
const Version = "v1beta1"

// GroupVersion identifies this package's API.
var GroupVersion = schema.GroupVersion{Group: v1beta2.Group, Version: Version}

// AddToScheme registers the types of this package in a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &OperatorPolicy{}, &OperatorPolicyList{}, &PolicySet{}, &PolicySetList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
