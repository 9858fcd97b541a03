// Package manager runs the controllers on the replica that holds the Lease. One that loses the Lease ends: what it has
// begun belongs to another one.
package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/opgate/opgate/internal/kept"
	"github.com/opgate/opgate/snapshot"
)

// LeaseName is the Lease that the leading replica holds, for certificates and all else that only one may do.
const LeaseName = kept.Lease

const (
	// leaseDuration is how long other replicas wait after the last renewal that they have seen. It is most of the time
	// until another replica leads after one was killed.
	leaseDuration = 8 * time.Second
	// renewDeadline is how long a leader retries a renewal before it stops.
	renewDeadline = 5 * time.Second
	// retryPeriod is the interval of renewals, and the shortest one at which other replicas read the Lease.
	retryPeriod = 2 * time.Second
	// validity is how long after a renewal the leader may write: as long as leader election retries. Another replica
	// acquires the Lease a second later at the soonest.
	validity = retryPeriod + renewDeadline
	// requestTimeout is half the time in which a leader has to renew, as that of controller-runtime's own locks.
	requestTimeout = renewDeadline / 2
)

// Lease is the lock of leader election, which a process wins once at most. It has annotations that outlast replicas, and
// the proof that this replica may write. It is safe for concurrent use.
type Lease struct {
	resourcelock.LeaseLock
	now      func() time.Time
	lost     func()
	acquired func(annotations map[string]string)
	// holder held the Lease when it was last read. before is when another replica last renewed it, as far as it was seen
	// until this replica acquired it.
	holder string
	before time.Time
	// renewed is when the last request was sent by which this replica has renewed the Lease; nil before it is acquired
	// and after it is released, zero once it is lost.
	renewed atomic.Pointer[time.Time]
}

// NewLease returns the Lease in a namespace. Holder names this process, as the name of the pod does. Lost is called when
// the Lease names another holder. Now is the clock, with the wall clock and the monotonic one. Nothing is read or
// written.
func NewLease(
	config *rest.Config, namespace, holder string, lost func(), now func() time.Time,
) (*Lease, error) {
	config = rest.CopyConfig(config)
	config.Timeout = requestTimeout
	client, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for Leases: %w", err)
	}
	return &Lease{now: now, lost: lost, acquired: func(map[string]string) {}, LeaseLock: resourcelock.LeaseLock{
		Client: client, LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: LeaseName},
		LockConfig: resourcelock.ResourceLockConfig{Identity: holder + "_" + string(uuid.NewUUID())}}}, nil
}

// OnAcquired sets a function that is called with the annotations when this replica has acquired the Lease, before
// controllers start. It must be called before the manager starts.
func (l *Lease) OnAcquired(acquired func(annotations map[string]string)) { l.acquired = acquired }

// LastRenewal returns when a replica last renewed the Lease before this one acquired it; zero for never. It may be
// called while this replica leads.
func (l *Lease) LastRenewal() time.Time { return l.before }

// Get reads the Lease for the elector, which would retry for renewDeadline although the Lease names another holder.
func (l *Lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.LeaseLock.Get(ctx)
	if err != nil {
		return nil, nil, err
	}
	switch l.holder = record.HolderIdentity; {
	case l.holder == l.Identity():
	case l.renewed.Load() == nil:
		l.before = record.RenewTime.Time
	default:
		l.renewed.Store(&time.Time{})
		l.lost()
	}
	return record, raw, nil
}

// Create acquires a Lease that does not exist, without annotations, or renews one that was deleted.
func (l *Lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(ctx, record, l.LeaseLock.Create)
}

// Update acquires, renews or releases the Lease. An elector releases what it last observed itself, and so the Lease of
// another replica after this process was stopped: that is an error.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == l.Identity() {
		return l.renew(ctx, record, l.LeaseLock.Update)
	}
	if l.holder != l.Identity() {
		return fmt.Errorf("not released, %q holds the Lease", l.holder)
	}
	// Before another replica can acquire it. An elector also releases what it could not renew in time: that is lost.
	if renewed := l.renewed.Swap(nil); renewed != nil && l.now().Sub(*renewed) >= renewDeadline {
		l.renewed.Store(&time.Time{})
	}
	return l.LeaseLock.Update(ctx, record)
}

// renew acquires or renews the Lease. The annotations are read before controllers start, so that none works without
// them.
func (l *Lease) renew(ctx context.Context, record resourcelock.LeaderElectionRecord,
	write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	renewed, sent := l.renewed.Load(), l.now()
	if renewed != nil && renewed.IsZero() {
		return errors.New("the Lease was lost, this process does not lead again")
	}
	if err := write(ctx, record); err != nil {
		return err
	}
	if renewed == nil {
		lease, err := l.Client.Leases(l.LeaseMeta.Namespace).Get(ctx, LeaseName, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read Lease %s: %w", l.Describe(), err) // leader election retries
		}
		l.acquired(lease.Annotations)
	}
	l.renewed.Store(&sent)
	return nil
}

// valid returns nil if this replica may write: it has renewed the Lease recently enough that no other replica can have
// acquired it. A process that was stopped finds out here, before its timers do: the wall clock counts as well, since
// the monotonic one stops while the machine is suspended.
func (l *Lease) valid() error {
	renewed := l.renewed.Load()
	if renewed == nil || renewed.IsZero() {
		return errors.New("this replica does not hold the Lease")
	}
	now := l.now()
	if age := max(now.Sub(*renewed), now.Round(0).Sub(renewed.Round(0))); age > validity {
		return fmt.Errorf("the Lease was last renewed %s ago", age.Round(time.Millisecond))
	}
	return nil
}

// Leads reports whether this replica leads.
func (l *Lease) Leads() bool { return l.valid() == nil }

// Annotate sets an annotation, or removes it if the value is "", while this replica leads. The leader renews the Lease
// at the same time; a write that fails with a conflict is repeated.
func (l *Lease) Annotate(ctx context.Context, annotation, value string) error {
	leases := l.Client.Leases(l.LeaseMeta.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := leases.Get(ctx, LeaseName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if holder := lease.Spec.HolderIdentity; holder == nil || *holder != l.Identity() {
			return errors.New("another replica leads")
		}
		if err := l.valid(); err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, annotation, value)
		if value == "" {
			delete(lease.Annotations, annotation)
		}
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("write annotation %s of Lease %s: %w", annotation, l.Describe(), err)
	}
	return nil
}

// fenced is a transport that sends no write unless this replica may write. All clients of controllers have it: a
// precondition on an object does not show that the policy was edited which the write follows from.
type fenced struct {
	next  http.RoundTripper
	lease *Lease
}

// RoundTrip sends a request.
func (f fenced) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		if err := f.lease.valid(); err != nil {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, fmt.Errorf("not sent, this replica does not lead: %w", err)
		}
	}
	return f.next.RoundTrip(req)
}

// Controller is added to the manager of the leader. It waits itself where it needs a snapshot.
type Controller interface {
	AddTo(mgr ctrl.Manager) error
}

// Leader is the manager of the controllers. Its clients send no write unless this replica leads.
type Leader struct {
	ctrl.Manager
	lease *Lease
}

// New returns a Leader, and registers the metric whether this replica leads.
func New(config *rest.Config, lease *Lease, registry prometheus.Registerer, log logr.Logger) (*Leader, error) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "opgate_loop_leading",
		Help: "Whether this replica runs the background loop (1) or not (0)."}, func() float64 {
		if lease.Leads() {
			return 1
		}
		return 0
	}))
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return fenced{next, lease} })
	mgr, err := manager.New(config, manager.Options{
		Logger:                              log,
		Metrics:                             metricsserver.Options{BindAddress: "0"}, // served by the process
		HealthProbeBindAddress:              "0",
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lease,
		LeaderElectionID:                    LeaseName,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       new(leaseDuration),
		RenewDeadline:                       new(renewDeadline),
		RetryPeriod:                         new(retryPeriod),
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager of the leader: %w", err)
	}
	return &Leader{mgr, lease}, nil
}

// Start runs the controllers while this replica leads, until the context ends or the Lease is lost. That is no error.
func (l *Leader) Start(ctx context.Context) error {
	err := l.Manager.Start(ctx)
	if l.lease.renewed.Load() != nil {
		return nil // not released: the Lease was lost
	}
	return err
}

// Queue is the work queue of a controller, from when that is added to a manager, so that watches and other controllers
// can enqueue before it starts. What is added earlier is dropped. It is safe for concurrent use.
type Queue[T comparable] struct {
	queue priorityqueue.PriorityQueue[T]
}

// Add enqueues items. It does not block.
func (q *Queue[T]) Add(items ...T) {
	for _, item := range items {
		q.AddAfter(item, 0)
	}
}

// AddAfter enqueues an item after a delay. It does not block.
func (q *Queue[T]) AddAfter(item T, delay time.Duration) {
	if q.queue != nil {
		q.queue.AddAfter(item, delay)
	}
}

// AddTo adds a controller with this queue to a manager.
func (q *Queue[T]) AddTo(
	mgr ctrl.Manager, name string, o controller.TypedOptions[T],
) (controller.TypedController[T], error) {
	q.queue = priorityqueue.New[T](name, func(of *priorityqueue.Opts[T]) { of.RateLimiter = o.RateLimiter })
	o.NewQueue = func(string, workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] { return q.queue }
	return controller.NewTyped(name, mgr, o)
}

// Registration is a controller whose events are the changes of the snapshot.
type Registration[T comparable] struct {
	// Name is the name of the controller in logs and metrics.
	Name       string
	Reconciler reconcile.TypedReconciler[T]
	// Workers is the number of items that are processed concurrently. Default: 1.
	Workers int
	Queue   *Queue[T]
	Store   *snapshot.Store
	// Changed enqueues what a change affects; the first one is that from nothing to the current snapshot. It must not
	// block.
	Changed func(*snapshot.Change)
	// Kinds must have been listed before anything is reconciled. Their CRDs may be installed after Opgate. Default:
	// those of every replica.
	Kinds []*snapshot.Kind
}

// AddTo adds the controller to a manager.
func (r Registration[T]) AddTo(mgr ctrl.Manager) error {
	c, err := r.Queue.AddTo(mgr, r.Name, controller.TypedOptions[T]{Reconciler: whileCurrent[T](r),
		MaxConcurrentReconciles: r.Workers})
	if err != nil {
		return err
	}
	return c.Watch(source.TypedFunc[T](func(ctx context.Context, _ workqueue.TypedRateLimitingInterface[T]) error {
		context.AfterFunc(ctx, r.Store.Subscribe(r.Changed))
		return nil
	}))
}

// staleRetry is the requeue delay while a kind is stale.
const staleRetry = time.Second

// whileCurrent reconciles nothing before there is a snapshot with all kinds, and while a kind is stale: what policies
// and Constraints forbid may have changed since.
type whileCurrent[T comparable] Registration[T]

// Reconcile implements reconcile.TypedReconciler.
func (w whileCurrent[T]) Reconcile(ctx context.Context, item T) (reconcile.Result, error) {
	if w.Store.Until(ctx, func(s *snapshot.Snapshot) bool { return s.Synced(w.Kinds...) }) != nil {
		return reconcile.Result{}, nil // this replica leads no more
	}
	if stale := w.Store.Stale(); len(stale) > 0 {
		log.FromContext(ctx).V(1).Info("watch stale, nothing is done until it shows progress",
			"resources", snapshot.Names(stale))
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	}
	return w.Reconciler.Reconcile(ctx, item)
}
