package operatorpolicy

import (
	"context"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/snapshot"
)

const (
	// LeaseName is the Lease that the leading replica holds.
	LeaseName = "opgate-loop"
	// restartDelay is the delay before a loop that cannot start, or lost its lease, retries.
	restartDelay = 5 * time.Second
)

// Loop is the background loop.
type Loop struct {
	options Options
	changes changes
}

// New returns a loop. Start runs it.
func New(o Options) (*Loop, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	l := &Loop{options: o}
	l.changes.Options = &l.options
	return l, nil
}

// Enqueue enqueues a namespace while this replica leads. It does not block.
func (l *Loop) Enqueue(namespace string) { l.changes.enqueue(namespace) }

// PackageChanged enqueues the namespaces with policies for a package. It does not block.
func (l *Loop) PackageChanged(pkg string) { l.changes.packageChanged(pkg) }

// NeedLeaderElection returns false: the loop has its own leader election.
func (l *Loop) NeedLeaderElection() bool { return false }

// Start waits for the lease and runs the loop until the context ends. It has a manager of its own, which stops
// when the lease is lost and is then recreated: a replica that loses the lease continues to serve admission.
func (l *Loop) Start(ctx context.Context) error {
	// The loop needs a snapshot; after this there always is one.
	_ = l.options.Store.Until(ctx, func(*snapshot.Snapshot) bool { return true })
	for ctx.Err() == nil {
		if err := l.lead(ctx); err != nil {
			l.options.Log.Error(err, "the background loop ended, it is started again", "after", restartDelay.String())
			_ = wait.PollUntilContextTimeout(ctx, restartDelay, 2*restartDelay, false, func(context.Context) (bool, error) { return true, nil })
		}
	}
	return nil
}

// lead runs one manager.
func (l *Loop) lead(ctx context.Context) error {
	o := &l.options
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, policyv1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	mgr, err := manager.New(o.Config, manager.Options{
		Scheme:                              scheme,
		Logger:                              o.Log,
		Metrics:                             metricsserver.Options{BindAddress: "0"}, // served by the process
		HealthProbeBindAddress:              "0",
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: o.Lock(),
		LeaderElectionReleaseOnCancel:       true,
	})
	if err != nil {
		return fmt.Errorf("make the manager of the loop: %w", err)
	}
	r := &reconciler{Options: o, client: mgr.GetClient(), reader: mgr.GetAPIReader(), origins: &l.changes.origins}
	c, err := controller.NewTyped("operatorpolicy", mgr, controller.TypedOptions[string]{
		Reconciler:              r,
		MaxConcurrentReconciles: o.Workers,
		SkipNameValidation:      new(true), // the name is used again after a lease was lost
		// OLM may be installed after Opgate: the controller waits for its CRDs.
		CacheSyncTimeout: math.MaxInt64,
	})
	if err != nil {
		return fmt.Errorf("make the loop: %w", err)
	}
	if err := c.Watch(&l.changes); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	for _, other := range o.Also {
		if err := other.AddTo(mgr); err != nil {
			return err
		}
	}
	defer o.Metrics.stopped()
	defer l.changes.stop()
	return mgr.Start(ctx)
}

type queue = workqueue.TypedRateLimitingInterface[string]
