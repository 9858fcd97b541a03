package manager

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/opgate/opgate/snapshot"
)

// Queue is the work queue of a controller, from when that is added to a manager, so that watches and other controllers
// can enqueue before it starts. What is added earlier is dropped. It is safe for concurrent use.
type Queue[T comparable] struct {
	queue priorityqueue.PriorityQueue[T]
}

// Add enqueues items. It does not block.
func (q *Queue[T]) Add(items ...T) { q.add(priorityqueue.AddOpts{}, items...) }

// AddAfter enqueues an item after a delay. It does not block.
func (q *Queue[T]) AddAfter(item T, delay time.Duration) {
	q.add(priorityqueue.AddOpts{After: delay}, item)
}

func (q *Queue[T]) add(o priorityqueue.AddOpts, items ...T) {
	if q.queue != nil {
		q.queue.AddWithOpts(o, items...)
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
	// Ready blocks until work may start, or the context ends. Default: not called.
	Ready func(ctx context.Context) error
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
	if w.Store.Until(ctx, func(s *snapshot.Snapshot) bool { return s.Synced(w.Kinds...) }) != nil ||
		w.Ready != nil && w.Ready(ctx) != nil {
		return reconcile.Result{}, nil // this replica leads no more
	}
	if stale := w.Store.Stale(); len(stale) > 0 {
		log.FromContext(ctx).V(1).Info("watch stale, nothing is done until it shows progress",
			"resources", snapshot.Names(stale))
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	}
	return w.Reconciler.Reconcile(ctx, item)
}
