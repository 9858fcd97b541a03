package clusterversion

import (
	"context"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/opgate/opgate/internal/watched"
)

// clusterVersions contain the version of OpenShift, or the one that it is being upgraded to.
var clusterVersions = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1",
	Resource: "clusterversions"}

// clusterVersionName is the name of the only ClusterVersion.
const clusterVersionName = "version"

// isOpenShift reports whether the API server serves ClusterVersions.
func (w *Watcher) isOpenShift(ctx context.Context) (bool, error) {
	var served metav1.APIResourceList
	err := w.discovery.RESTClient().Get().AbsPath("/apis", clusterVersions.Group,
		clusterVersions.Version).Do(ctx).Into(&served)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return slices.ContainsFunc(served.APIResources,
		func(r metav1.APIResource) bool { return r.Name == clusterVersions.Resource }), err
}

// watchOpenShift watches the ClusterVersion until the context ends.
func (w *Watcher) watchOpenShift(ctx context.Context) {
	var version *watched.Object
	changed := func() { w.update(func() { w.openShift, w.openShiftKnown = desired(version.Get()), true }) }
	version, err := watched.New(w.objects, clusterVersions, "", clusterVersionName, changed, w.Log)
	if err != nil {
		w.Log.Error(err, "OpenShift version is not watched")
		return
	}
	// It returns an error on a running informer only.
	_ = version.Informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		w.Log.Info("OpenShift version watch interrupted, retrying with backoff", "error", err.Error())
		// Otherwise a missing permission would hide the version of Kubernetes permanently.
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) {
			w.update(func() { w.openShiftKnown = true })
		}
	})
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), version.Synced) {
			w.update(func() { w.openShiftKnown = true }) // even if there is none
		}
	})
	version.Informer.RunWithContext(ctx)
}

// desired returns the version that the cluster has or is being upgraded to.
func desired(u *unstructured.Unstructured) string {
	if u == nil {
		return ""
	}
	version, _, _ := unstructured.NestedString(u.Object, "status", "desired", "version") // another type is ignored
	return version
}
