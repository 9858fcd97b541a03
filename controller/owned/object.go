// Package owned is what the objects of Opgate that a ClusterRole of the release owns have in common: their owner,
// without which nothing is written, and their metadata.
//
// An object replaces the stored one: server-side apply would leave alone what another client has added, and an
// exemption in an admission policy must not stay.
package owned

import (
	"maps"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/watched"
)

// ManagedBy is the value of label metakey.ManagedBy, which every object has.
const ManagedBy = "opgate"

// Labels are set on every owned object. Those of the release would make GitOps tools take the objects for their own.
var Labels = map[string]string{metakey.ManagedBy: ManagedBy, "app.kubernetes.io/part-of": "opgate"}

// Unstructured converts an object that was built from strings, numbers, booleans and lists of them.
func Unstructured(object any) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		panic(err)
	}
	delete(content, "status")
	return &unstructured.Unstructured{Object: content}
}

// Desired returns an object to send in place of the live one, nil if there is none: with the metadata of that, the
// labels and the owner.
func Desired(live, object *unstructured.Unstructured, owner *metav1.OwnerReference) *unstructured.Unstructured {
	next := object.DeepCopy()
	if live != nil {
		next.Object["metadata"] = metadata(live)
		if own := object.GetAnnotations(); len(own) > 0 {
			next.SetAnnotations(labels.Merge(next.GetAnnotations(), own))
		}
	}
	next.SetLabels(labels.Merge(next.GetLabels(), Labels))
	next.SetOwnerReferences([]metav1.OwnerReference{*owner})
	return next
}

// Same reports whether a stored object is as desired. Its status is not compared.
func Same(live, desired *unstructured.Unstructured) bool {
	if live == nil {
		return false
	}
	stored := maps.Clone(live.Object)
	delete(stored, "status")
	stored["metadata"] = metadata(live)
	return equality.Semantic.DeepEqual(stored, desired.Object)
}

// metadata returns the metadata of an object as it can be sent.
func metadata(live *unstructured.Unstructured) map[string]any {
	fields, _ := live.Object["metadata"].(map[string]any) // the API server stores none without
	fields = maps.Clone(fields)
	delete(fields, "managedFields")
	return runtime.DeepCopyJSON(fields)
}

// Owner is the watch of the ClusterRole that grants the rights to objects, and owns them.
type Owner struct {
	*watched.Object
	name, grants string
	log          logr.Logger
	missing      bool
}

// NewOwner returns the watch of an owner, which grants the rights to some objects. Changed is called after each change.
func NewOwner(client dynamic.Interface, name, grants string, changed func(any), log logr.Logger) *Owner {
	return &Owner{name: name, grants: grants, log: log,
		Object: watched.New(client, rbacv1.SchemeGroupVersion.WithResource("clusterroles"), "", name, changed, log)}
}

// Reference returns the reference to the ClusterRole, nil if that does not exist, which is logged once.
func (o *Owner) Reference() *metav1.OwnerReference {
	role := o.Get()
	missing := role == nil || role.GetDeletionTimestamp() != nil
	if missing && !o.missing {
		o.log.Info("ClusterRole not found: it grants the rights to "+o.grants+
			" and owns them, so nothing is written without it", "clusterrole", o.name)
	}
	if o.missing = missing; missing {
		return nil
	}
	return &metav1.OwnerReference{APIVersion: role.GetAPIVersion(), Kind: role.GetKind(), Name: role.GetName(),
		UID: role.GetUID()}
}
