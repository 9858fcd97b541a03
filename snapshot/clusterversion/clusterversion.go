package clusterversion

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
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
	// Changed is called with the versions once all of them are known, and again when one changes. It must not block.
	// OpenShift is empty if the cluster is not OpenShift, or if reading its version is forbidden, which is logged.
	// Required.
	Changed func(facts.Cluster)
	// Interval is how often the version of Kubernetes is read without a call of Refresh. Default: an hour. The version
	// of OpenShift is watched.
	Interval time.Duration
	// Pause is the minimum time between two reads. Default: 10 s.
	Pause time.Duration
	// Log logs versions and read errors at V(0). Default: none.
	Log logr.Logger
}

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
	if o.Interval <= 0 {
		o.Interval = time.Hour
	}
	if o.Pause <= 0 {
		o.Pause = 10 * time.Second
	}
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
		if signal.Sleep(ctx, w.Pause) != nil {
			return nil
		}
		again := time.NewTimer(wait.Jitter(w.Interval, 0.1))
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
	for {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		w.Log.Info(message, "error", err.Error())
		if signal.Sleep(ctx, backoff.Step()) != nil {
			return
		}
	}
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
