// Package clusterversion reads the version of the cluster: of Kubernetes and, on OpenShift, of OpenShift. Constraints
// and the minimum versions of bundles are judged by it.
package clusterversion

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/rules/facts"
)

// Options configure a Watcher.
type Options struct {
	// Config is the configuration of the API client. Required.
	Config *rest.Config
	// Changed is called with the versions once they are known, and again when one changes. It must not block. OpenShift
	// is empty if the cluster is not OpenShift, or if reading its version is forbidden, which is logged. Required.
	Changed func(facts.Cluster)
	// Log logs versions and read errors at V(0). Default: none.
	Log logr.Logger
}

const (
	// interval is how often the versions are read without a call of Refresh, openShiftInterval on OpenShift, which is
	// upgraded without a restart of the API server at first.
	interval, openShiftInterval = 10 * time.Minute, time.Minute
	// pause is the minimum time between two reads.
	pause = 10 * time.Second
	// timeout bounds one read.
	timeout = 30 * time.Second
)

// Watcher notifies of the versions of the cluster.
type Watcher struct {
	Options
	// refresh holds one token, so that any number of calls while the versions are read cost one more read.
	refresh chan struct{}
}

// New returns a watcher. Start runs it.
func New(o Options) *Watcher { return &Watcher{Options: o, refresh: make(chan struct{}, 1)} }

// Refresh triggers a read of the versions, after events that may be an upgrade of the control plane. It does not block.
func (w *Watcher) Refresh() { signal.Put(w.refresh) }

// Start reads the versions until the context ends, after a failure again with exponential backoff: a cluster whose version
// of OpenShift is not known yet would be taken for one that is not OpenShift. A version that may not be read counts as
// none, since a missing permission would otherwise hide that of Kubernetes permanently.
func (w *Watcher) Start(ctx context.Context) error {
	first := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: time.Minute}
	backoff, last := first, facts.Cluster{}
	for {
		now, err := Read(ctx, w.Config)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			w.Log.Info("read versions of the cluster failed", "error", err.Error())
			if now.Version == "" || !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
				_ = signal.Sleep(ctx, backoff.Step())
				continue
			}
		}
		backoff = first
		if now.Version != last.Version || now.OpenShift != last.OpenShift {
			w.Log.Info("versions of the cluster", "kubernetes", now.Version, "openshift", now.OpenShift)
			w.Changed(now)
			last = now
		}
		if signal.Sleep(ctx, pause) != nil {
			return nil
		}
		next := interval
		if last.OpenShift != "" {
			next = openShiftInterval
		}
		select {
		case <-ctx.Done():
		case <-w.refresh:
		case <-time.After(wait.Jitter(next, 0.1)):
		}
	}
}

// kubernetesVersion truncates a gitVersion, such as v1.36.3-eks-1234+abc, to what OLM compares minKubeVersion with:
// suffixes of vendors would make it a pre-release, which is less than the release.
func kubernetesVersion(gitVersion string) (string, error) {
	v, err := version.ParseGeneric(gitVersion)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d.%d.%d", v.Major(), v.Minor(), v.Patch()), nil
}

// clusterVersions contain the version of OpenShift, or the one that it is being upgraded to.
var clusterVersions = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1",
	Resource: "clusterversions"}

// Read reads the versions of the cluster once. As in Options.Changed, OpenShift is empty if the cluster is not
// OpenShift. If only that version cannot be read, that of Kubernetes is returned with the error.
func Read(ctx context.Context, config *rest.Config) (versions facts.Cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return versions, fmt.Errorf("make a discovery client: %w", err)
	}
	info, err := client.ServerVersionWithContext(ctx)
	if err == nil {
		versions.Version, err = kubernetesVersion(info.GitVersion)
	}
	if err != nil {
		return versions, fmt.Errorf("read the version of Kubernetes: %w", err)
	}
	// where the group is not served, reading the object may be forbidden
	_, err = client.ServerResourcesForGroupVersionWithContext(ctx, clusterVersions.GroupVersion().String())
	var objects dynamic.Interface
	if err == nil {
		objects, err = dynamic.NewForConfig(config)
	}
	var object *unstructured.Unstructured
	if err == nil {
		object, err = objects.Resource(clusterVersions).Get(ctx, "version", metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		return versions, nil // it is not OpenShift
	case err != nil:
		return versions, fmt.Errorf("read the version of OpenShift: %w", err)
	}
	// another type is ignored
	versions.OpenShift, _, _ = unstructured.NestedString(object.Object, "status", "desired", "version")
	return versions, nil
}
