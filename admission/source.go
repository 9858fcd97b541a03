package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules"
)

// source is one resource that the snapshot follows.
type source struct {
	resource schema.GroupVersionResource
	// read decodes an object, and tells which namespace it concerns and how it is added to a cluster. An
	// object that counts for nothing gives a nil add.
	read func(raw []byte) (concerns string, add func(*rules.Cluster), err error)
	// salvage stands in for read where that fails; nil leaves the object out.
	salvage func(u *unstructured.Unstructured, cause error) (concerns string, add func(*rules.Cluster))
}

var olm = schema.GroupVersion{Group: "operators.coreos.com", Version: "v1alpha1"}

var sources = []source{
	{policyv1beta2.GroupVersion.WithResource("operatorpolicies"), readPolicy, salvagePolicy},
	{olm.WithResource("subscriptions"), readSubscription, nil},
	{olm.WithResource("installplans"), readPlan, nil},
	{olm.WithResource("clusterserviceversions"), readCSV, nil},
}

func readPolicy(raw []byte) (string, func(*rules.Cluster), error) {
	op, _, err := rules.DecodePolicy(raw)
	if err != nil {
		return "", nil, err
	}
	p := rules.NewPolicy(op)
	return p.TargetNamespace, func(c *rules.Cluster) { c.AddPolicy(p) }, nil
}

// salvagePolicy keeps a stored policy that does not decode as one that holds what it governs: it must not
// disappear (threat G5).
func salvagePolicy(u *unstructured.Unstructured, cause error) (string, func(*rules.Cluster)) {
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(u.Object, fields...) // a value of another type names nothing
		return s
	}
	p := rules.UnreadablePolicy(u.GetNamespace(), u.GetName(),
		text("spec", "subscription", "namespace"), text("spec", "subscription", "name"), cause)
	return p.TargetNamespace, func(c *rules.Cluster) { c.AddPolicy(p) }
}

func readSubscription(raw []byte) (string, func(*rules.Cluster), error) {
	s, err := rules.DecodeSubscription(raw)
	if err != nil {
		return "", nil, err
	}
	return s.Metadata.Namespace, func(c *rules.Cluster) { c.AddSubscription(s) }, nil
}

func readPlan(raw []byte) (string, func(*rules.Cluster), error) {
	p, err := rules.DecodePlan(raw)
	if err != nil {
		return "", nil, err
	}
	// A plan has dozens of steps; the preview, which is all that reads stored plans, needs those of CSVs.
	p.Status.Steps = slices.DeleteFunc(p.Status.Steps, func(s rules.Step) bool { return s.Resource.Kind != "ClusterServiceVersion" })
	return p.Metadata.Namespace, func(c *rules.Cluster) { c.AddPlan(p) }, nil
}

func readCSV(raw []byte) (string, func(*rules.Cluster), error) {
	namespace, installed, here, err := rules.DecodeCSV(raw)
	if err != nil || !here {
		return namespace, nil, err
	}
	return namespace, func(c *rules.Cluster) { c.AddCSV(namespace, installed) }, nil
}

// transform shrinks each object to an item as it arrives, so that manifests of hundreds of kilobytes are
// not kept, and so that objects are decoded by the same code as in reviews.
func (f *Feed) transform(src source) cache.TransformFunc {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil // transformed before, or a tombstone
		}
		it := &item{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()}}
		it.concerns, it.add = f.read(src, u)
		if it.add == nil {
			it.add = func(*rules.Cluster) {}
		}
		return it, nil
	}
}

func (f *Feed) read(src source, u *unstructured.Unstructured) (string, func(*rules.Cluster)) {
	raw, err := json.Marshal(u.Object)
	if err == nil {
		var concerns string
		var add func(*rules.Cluster)
		if concerns, add, err = src.read(raw); err == nil {
			return concerns, add
		}
	}
	f.log.Error(err, "object cannot be read", "resource", src.resource.Resource, "namespace", u.GetNamespace(), "name", u.GetName())
	if src.salvage == nil {
		return u.GetNamespace(), nil
	}
	return src.salvage(u, fmt.Errorf("decode the stored object: %w", err))
}

func unstructuredExample() runtime.Object { return &unstructured.Unstructured{} }

func listing(r dynamic.ResourceInterface) cache.ListWithContextFunc {
	return func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.List(ctx, options)
	}
}

func watching(r dynamic.ResourceInterface) cache.WatchFuncWithContext {
	return func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		return r.Watch(ctx, options)
	}
}
