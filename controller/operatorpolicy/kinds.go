package operatorpolicy

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/olm"
)

// The kinds that are watched beside those of the snapshot. They are read as they come and decoded field by
// field: one object that does not fit its Go type would stop a typed watch, and with it the whole loop.
var (
	gvkOperatorGroup = olm.OperatorGroupGVK
	gvkSubscription  = olm.SubscriptionGVK
	gvkPlan          = olm.InstallPlanGVK
	gvkCSV           = olm.ClusterServiceVersionGVK
	gvkCatalogSource = olm.CatalogSourceGVK
	gvkDeployment    = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	gvkCRD           = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	gvkNamespace     = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
)

// whole stands for objects of a kind with all their fields.
func whole(gvk schema.GroupVersionKind) client.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

// headOnly stands for objects of a kind of which the metadata is enough.
func headOnly(gvk schema.GroupVersionKind) client.Object {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(gvk)
	return m
}

// trim drops, before the metadata of an object is kept, what is not read here. Whole objects come as kept has them.
func trim(obj any) (any, error) {
	if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
		m.ManagedFields = nil
		m.Annotations = only(m.Annotations, UngovernedAnnotation)
	}
	return obj, nil
}

// only gives some entries of a map.
func only(from map[string]string, names ...string) map[string]string {
	var kept map[string]string
	for _, name := range names {
		if v, ok := from[name]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[name] = v
		}
	}
	return kept
}

// sameForUs tells whether nothing that is kept of an object has changed but its resourceVersion.
func sameForUs(a, b client.Object) bool {
	return equality.Semantic.DeepEqual(unversioned(a), unversioned(b))
}

func unversioned(o client.Object) client.Object {
	o = o.DeepCopyObject().(client.Object)
	o.SetResourceVersion("")
	return o
}
