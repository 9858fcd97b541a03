// Package clusterversion watches the version of the cluster: of Kubernetes and, on OpenShift, of OpenShift. Constraints
// and the minimum versions of bundles are judged by it.
package clusterversion

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/blang/semver/v4"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/internal/watched"
	"github.com/opgate/opgate/rules/facts"
)

// Options configure a Watcher.
type Options struct {
	// Config is the configuration of the API client. Required.
	Config *rest.Config
	// Changed is called with the versions once all of them are known, and again when one changes. It must not block.
	// OpenShift is empty if the cluster is not OpenShift, or if reading its version is forbidden, which is logged.
	// Required.
	Changed func(facts.Cluster)
	// Log logs versions and read errors at V(0). Default: none.
	Log logr.Logger
}

const (
	// interval is how often the version of Kubernetes is read without a call of Refresh; that of OpenShift is watched.
	interval = time.Hour
	// pause is the minimum time between two reads.
	pause = 10 * time.Second
)

// Watcher watches the versions of the cluster.
type Watcher struct {
	Options
	discovery discovery.DiscoveryInterface
	objects   dynamic.Interface

	// refresh holds one token, so that any number of calls while a version is read cost one more read.
	refresh chan struct{}

	mu sync.Mutex
	// openShift is empty on other clusters; openShiftKnown reports whether it was read, or cannot be.
	kubernetes, openShift string
	openShiftKnown        bool
	lastNotified          facts.Cluster
}

// New returns a watcher. Start runs it.
func New(o Options) (*Watcher, error) {
	versions, err := discovery.NewDiscoveryClientForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("make a discovery client: %w", err)
	}
	objects, err := dynamic.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &Watcher{Options: o, discovery: versions, objects: objects, refresh: make(chan struct{}, 1)}, nil
}

// Refresh triggers a read of the version of Kubernetes, after events that may be an upgrade of the control plane. It
// does not block.
func (w *Watcher) Refresh() { signal.Put(w.refresh) }

// Start watches the versions until the context ends.
func (w *Watcher) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	var served bool
	w.retry(ctx, "read served resources failed, retrying with backoff", func(ctx context.Context) (err error) {
		served, err = w.isOpenShift(ctx)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return nil
	case served:
		running.Go(func() { w.watchOpenShift(ctx) })
	default:
		w.update(func() { w.openShiftKnown = true })
	}
	for ctx.Err() == nil {
		w.retry(ctx, "read Kubernetes version failed, retrying with backoff", w.readKubernetes)
		if signal.Sleep(ctx, pause) != nil {
			return nil
		}
		again := time.NewTimer(wait.Jitter(interval, 0.1))
		select {
		case <-ctx.Done():
		case <-w.refresh:
		case <-again.C:
		}
		again.Stop()
	}
	return nil
}

// retry runs do with exponential backoff until it succeeds or the context ends.
func (w *Watcher) retry(ctx context.Context, message string, do func(context.Context) error) {
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: time.Minute}
	// only the context ends it before it succeeds
	_ = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (done bool, _ error) {
		err := do(ctx)
		if err != nil && ctx.Err() == nil {
			w.Log.Info(message, "error", err.Error())
		}
		return err == nil, nil
	})
}

// update changes the state under the lock, and calls Changed if all versions are known and one differs. It waits for
// all of them: a cluster whose version of OpenShift is not known yet would be taken for one that is not OpenShift.
func (w *Watcher) update(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	if w.kubernetes == "" || !w.openShiftKnown || w.lastNotified.Version == w.kubernetes &&
		w.lastNotified.OpenShift == w.openShift {
		return
	}
	w.lastNotified = facts.Cluster{Version: w.kubernetes, OpenShift: w.openShift}
	w.Log.Info("versions of the cluster", "kubernetes", w.kubernetes, "openshift", w.openShift)
	w.Changed(w.lastNotified)
}

// readKubernetes reads the version of the API server.
func (w *Watcher) readKubernetes(ctx context.Context) error {
	raw, err := w.discovery.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return err
	}
	var info version.Info
	if err := json.Unmarshal(raw, &info); err != nil {
		return fmt.Errorf("read the version: %w", err)
	}
	kubernetes, err := kubernetesVersion(info.GitVersion)
	if err != nil {
		return err
	}
	w.update(func() { w.kubernetes = kubernetes })
	return nil
}

// kubernetesVersion truncates a gitVersion, such as v1.36.3-eks-1234+abc, to what OLM compares minKubeVersion with:
// suffixes of vendors would make it a pre-release, which is less than the release.
func kubernetesVersion(gitVersion string) (string, error) {
	v := strings.TrimPrefix(gitVersion, "v")
	if i := strings.IndexAny(v, "-+"); i >= 0 {
		v = v[:i]
	}
	if _, err := semver.Parse(v); err != nil {
		return "", fmt.Errorf("version %q of the API server is not a semantic version: %w", gitVersion, err)
	}
	return v, nil
}

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
	version.Failed = func(err error) {
		// Otherwise a missing permission would hide the version of Kubernetes permanently.
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) {
			w.update(func() { w.openShiftKnown = true })
		}
	}
	_ = version.Start(ctx)
}

// desired returns the version that the cluster has or is being upgraded to.
func desired(u *unstructured.Unstructured) string {
	if u == nil {
		return ""
	}
	version, _, _ := unstructured.NestedString(u.Object, "status", "desired", "version") // another type is ignored
	return version
}

// Read reads the versions of the cluster once, for commands. As in Options.Changed, OpenShift is empty if the cluster
// is not OpenShift. If only that version cannot be read, that of Kubernetes is returned with the error.
func Read(ctx context.Context, config *rest.Config) (facts.Cluster, error) {
	w, err := New(Options{Config: config, Changed: func(facts.Cluster) {}})
	if err != nil {
		return facts.Cluster{}, err
	}
	if err := w.readKubernetes(ctx); err != nil {
		return facts.Cluster{}, fmt.Errorf("read the version of Kubernetes: %w", err)
	}
	versions := facts.Cluster{Version: w.kubernetes}
	served, err := w.isOpenShift(ctx)
	if err != nil || !served {
		return versions, err
	}
	object, err := w.objects.Resource(clusterVersions).Get(ctx, clusterVersionName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return versions, nil
	}
	if err != nil {
		return versions, fmt.Errorf("read the version of OpenShift: %w", err)
	}
	versions.OpenShift = desired(object)
	return versions, nil
}
