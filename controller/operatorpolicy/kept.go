package operatorpolicy

import (
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/stream"
)

// kept says, for the kinds that are read as whole, which fields are kept. Tenants write objects of these kinds, as large as the API
// server takes them. What is too large in a field is kept as a text that stands for it (stream.Withheld).
var kept = map[schema.GroupVersionKind]struct {
	resource string
	// labels and annotations are kept besides the rest of the metadata.
	labels, annotations []string
	fields              stream.Fields
}{
	gvkSubscription: {resource: olm.Subscriptions.Resource, labels: []string{compliance.ManagedMark}, annotations: []string{compliance.ManagedMark},
		fields: stream.Fields{
			"spec": {stream.Any: nil},
			"status": {"installedCSV": nil, "currentCSV": nil, "state": nil, "installPlanRef": {"name": nil}, "conditions": nil,
				"lastUpdated": nil},
		}},
	gvkOperatorGroup: {resource: olm.OperatorGroups.Resource,
		fields: stream.Fields{
			"spec":   {stream.Any: nil},
			"status": {"namespaces": nil},
		}},
	gvkCSV: {resource: olm.ClusterServiceVersions.Resource, labels: []string{olm.CopiedFromLabel}, annotations: []string{olm.PropertiesAnnotation, olm.OperatorNamespaceAnnotation},
		fields: stream.Fields{
			"spec":   {"installModes": nil, "version": nil},
			"status": {"phase": nil, "reason": nil, "message": nil},
		}},
	gvkCatalogSource: {resource: olm.CatalogSources.Resource,
		fields: stream.Fields{
			"spec":   {stream.Any: nil},
			"status": {"connectionState": {"address": nil, "lastObservedState": nil}, "registryService": nil, "latestImageRegistryPoll": nil},
		}},
	gvkDeployment: {resource: "deployments",
		fields: stream.Fields{
			"spec":   {"replicas": nil},
			"status": {"observedGeneration": nil, "unavailableReplicas": nil, "availableReplicas": nil},
		}},
}

// fieldsOf are all that is kept of a kind.
func fieldsOf(gvk schema.GroupVersionKind) stream.Fields {
	of := kept[gvk]
	labels := stream.Fields{}
	for _, name := range of.labels {
		labels[name] = nil
	}
	annotations := stream.Fields{metav1.InitialEventsAnnotationKey: nil}
	for _, name := range of.annotations {
		annotations[name] = nil
	}
	fields := stream.Fields{"metadata": {"name": nil, "generateName": nil, "namespace": nil, "uid": nil, "resourceVersion": nil, "generation": nil,
		"creationTimestamp": nil,
		"deletionTimestamp": nil, "finalizers": nil, "ownerReferences": nil, "labels": labels, "annotations": annotations}}
	for name, below := range of.fields {
		fields[name] = below
	}
	return fields
}

// decode makes what is kept of an object from its JSON.
func decode(gvk schema.GroupVersionKind) stream.Decode {
	fields := fieldsOf(gvk)
	return func(raw []byte) (runtime.Object, error) {
		u := &unstructured.Unstructured{Object: stream.Pick(raw, fields)}
		u.SetGroupVersionKind(gvk)
		if gvk == gvkCSV {
			if err := unstructured.SetNestedStringSlice(u.Object, deploymentsOf(raw), "spec", "deployments"); err != nil {
				return nil, fmt.Errorf("decode %s %s/%s: %w", gvk.Kind, u.GetNamespace(), u.GetName(), err)
			}
		}
		return u, nil
	}
}

// maxDeployments bounds the Deployments of one operator. Those in use have a dozen.
const maxDeployments = 1000

// deploymentsOf names the Deployments in the install strategy of a ClusterServiceVersion.
func deploymentsOf(raw []byte) []string {
	var object struct {
		Spec struct {
			Install struct {
				Spec struct {
					Deployments []struct {
						Name string `json:"name"`
					} `json:"deployments"`
				} `json:"spec"`
			} `json:"install"`
		} `json:"spec"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &object) != nil {
		return nil // of another shape, there are none
	}
	var names []string
	for _, d := range object.Spec.Install.Spec.Deployments {
		if d.Name != "" && len(names) < maxDeployments {
			names = append(names, d.Name)
		}
	}
	return names
}

// newInformer makes informers of whole objects read them one at a time, and keep of them what kept says. The others stay as they are.
func newInformer(config *rest.Config, client *http.Client) (func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer, error) {
	objects, err := stream.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	return func(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		gvk := example.GetObjectKind().GroupVersionKind()
		if of, ok := kept[gvk]; ok {
			if _, whole := example.(*unstructured.Unstructured); whole {
				lw = objects.ListerWatcher(gvk.GroupVersion().WithResource(of.resource), decode(gvk))
			}
		}
		return toolscache.NewSharedIndexInformer(lw, example, resync, indexers)
	}, nil
}
