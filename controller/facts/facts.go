package facts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/rules/constraint"
)

// Options configure Facts.
type Options struct {
	// Config reaches the API server. Required.
	Config *rest.Config
	// Changed is told the versions once all of them are known, and again whenever one differs. It must return at once.
	// Required. A cluster of which OpenShift is empty is none, or its version may not be read, which is logged.
	Changed func(constraint.Cluster)
	// Interval is how often the version of Kubernetes is read though nothing asks for it. Default: an hour. That of
	// OpenShift is watched.
	Interval time.Duration
	// Pause is the shortest time between two readings that Refresh asks for. Default: 10 s.
	Pause time.Duration
	// Log takes versions and what keeps them from being read at V(0). Default: none.
	Log logr.Logger
}

// Facts keeps somebody informed of the versions of the cluster.
type Facts struct {
	Options
	versions discovery.DiscoveryInterface
	objects  dynamic.Interface

	// refresh holds one token, so that any number of calls while a version is read cost one more reading.
	refresh chan struct{}

	mu sync.Mutex
	// kubernetes and openShift are what is known; the second also where it is known that there is none.
	kubernetes, openShift string
	openShiftKnown        bool
	told                  constraint.Cluster
}

// New makes Facts. Start runs them.
func New(o Options) (*Facts, error) {
	if o.Config == nil || o.Changed == nil {
		return nil, errors.New("facts options: Config and Changed are required")
	}
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
	return &Facts{Options: o, versions: versions, objects: objects, refresh: make(chan struct{}, 1)}, nil
}

// NeedLeaderElection is false: every replica judges, so every replica needs to know.
func (f *Facts) NeedLeaderElection() bool { return false }

// Refresh has the version of Kubernetes read again soon, for when the control plane was perhaps upgraded. It returns
// at once.
func (f *Facts) Refresh() {
	select {
	case f.refresh <- struct{}{}:
	default:
	}
}

// Start keeps the versions current until the context ends.
func (f *Facts) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	var served bool
	f.insist(ctx, "what the API server serves cannot be read, it is tried again", func(ctx context.Context) (err error) {
		served, err = f.isOpenShift(ctx)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return nil
	case served:
		running.Go(func() { f.followOpenShift(ctx) })
	default:
		f.learn(func() { f.openShiftKnown = true })
	}
	for ctx.Err() == nil {
		f.insist(ctx, "the version of Kubernetes cannot be read, it is tried again", f.readKubernetes)
		if pause(ctx, f.Pause) != nil {
			return nil
		}
		again := time.NewTimer(wait.Jitter(f.Interval, 0.1))
		select {
		case <-ctx.Done():
		case <-f.refresh:
		case <-again.C:
		}
		again.Stop()
	}
	return nil
}

// insist does something until it succeeds or the context ends, ever less often.
func (f *Facts) insist(ctx context.Context, complaint string, do func(context.Context) error) {
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: time.Minute}
	for {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		f.Log.Info(complaint, "error", err.Error())
		if pause(ctx, backoff.Step()) != nil {
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// learn takes something new, and tells of it if all is known and something differs. Until then nothing is told: a
// cluster whose version of Kubernetes is known and that of OpenShift is not would pass for one that is not OpenShift.
func (f *Facts) learn(something func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	something()
	if f.kubernetes == "" || !f.openShiftKnown || f.told.Version == f.kubernetes && f.told.OpenShift == f.openShift {
		return
	}
	f.told = constraint.Cluster{Version: f.kubernetes, OpenShift: f.openShift}
	f.Log.Info("versions of the cluster", "kubernetes", f.kubernetes, "openshift", f.openShift)
	f.Changed(f.told)
}
