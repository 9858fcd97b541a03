package operatorpolicy

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/snapshot"
)

var (
	gvkSubscription = snapshot.Subscriptions.GroupVersionKind
	gvkPlan         = snapshot.InstallPlans.GroupVersionKind
	gvkNamespace    = snapshot.Namespaces.GroupVersionKind
)

// headOnly returns an object for requests whose response is only metadata.
func headOnly(gvk schema.GroupVersionKind) client.Object {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(gvk)
	return m
}
