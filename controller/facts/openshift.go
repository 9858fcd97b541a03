package facts

import (
	"context"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// clusterVersions are where OpenShift says which version it is, or is on the way to.
var clusterVersions = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "clusterversions"}

// clusterVersionName is the name of the only one.
const clusterVersionName = "version"

// isOpenShift asks whether the API server serves ClusterVersions.
func (f *Facts) isOpenShift(ctx context.Context) (bool, error) {
	var served metav1.APIResourceList
	err := f.versions.RESTClient().Get().AbsPath("/apis", clusterVersions.Group, clusterVersions.Version).Do(ctx).Into(&served)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == clusterVersions.Resource }), err
}

// followOpenShift watches the ClusterVersion until the context ends.
func (f *Facts) followOpenShift(ctx context.Context) {
	client := f.objects.Resource(clusterVersions)
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, clusterVersionName).String()
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return client.Watch(ctx, o)
		},
	}, f.objects), &unstructured.Unstructured{}, 0, nil)
	// Only what a running informer would be given fails here.
	_ = informer.SetTransform(onlyVersion)
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		f.Log.Info("the version of OpenShift cannot be followed, it is tried again", "error", err.Error())
		// What a role forbids would otherwise keep the version of Kubernetes from being told for ever.
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) {
			f.learn(func() { f.openShiftKnown = true })
		}
	})
	learn := func(version string) { f.learn(func() { f.openShift, f.openShiftKnown = version, true }) }
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { learn(desired(obj)) },
		UpdateFunc: func(_, obj any) { learn(desired(obj)) },
		DeleteFunc: func(any) { learn("") },
	})
	if err != nil {
		f.Log.Error(err, "the version of OpenShift is not followed")
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			f.learn(func() { f.openShiftKnown = true }) // even if there is none
		}
	})
	informer.RunWithContext(ctx)
}

// onlyVersion keeps of a ClusterVersion what is read here; its history and conditions are long.
func onlyVersion(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	kept := &unstructured.Unstructured{Object: map[string]any{}}
	kept.SetGroupVersionKind(u.GroupVersionKind())
	kept.SetName(u.GetName())
	kept.SetResourceVersion(u.GetResourceVersion())
	_ = unstructured.SetNestedField(kept.Object, desired(u), "status", "desired", "version") // there is nothing in its way
	return kept, nil
}

// desired is the version that the cluster is or is being brought to.
func desired(obj any) string {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return ""
	}
	version, _, _ := unstructured.NestedString(u.Object, "status", "desired", "version") // of another type it says nothing
	return version
}
