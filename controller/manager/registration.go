package manager

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/opgate/opgate/snapshot"
)

// Queue is the work queue of a controller for one term of leadership after another. What is added while this replica
// does not lead is dropped: a new leader enqueues everything. The zero value is ready for use; it is safe for
// concurrent use.
type Queue[T comparable] struct {
	// current is that of the last term, which was shut down at its end; nil before the first.
	current atomic.Pointer[workqueue.TypedRateLimitingInterface[T]]
}

// Add enqueues items. It does not block.
func (q *Queue[T]) Add(items ...T) {
	if current := q.current.Load(); current != nil {
		for _, item := range items {
			(*current).Add(item)
		}
	}
}

// AddAfter enqueues an item after a delay. It does not block.
func (q *Queue[T]) AddAfter(item T, delay time.Duration) {
	if current := q.current.Load(); current != nil {
		(*current).AddAfter(item, delay)
	}
}

// Registration is a controller for one term of leadership, whose events are the changes of the snapshot.
type Registration[T comparable] struct {
	// Name is the name of the controller in logs and metrics. Required.
	Name string
	// Reconciler processes the items of the queue. Required.
	Reconciler reconcile.TypedReconciler[T]
	// Workers is the number of items that are processed concurrently. Default: 1.
	Workers int
	// Queue is the queue of the controller. Required.
	Queue *Queue[T]
	// Store provides the changes. Required.
	Store *snapshot.Store
	// Changed enqueues what a change affects; the first one is that from nothing to the current snapshot. It must not
	// block. Required.
	Changed func(*snapshot.Change)
	// Kinds must have been listed before the first change is passed on. Their CRDs may be installed after Opgate.
	// Default: none.
	Kinds []*snapshot.Kind
	// Ready blocks until work may start, or the context ends. Default: not called.
	Ready func(ctx context.Context) error
	// Started is called when this replica starts to lead, Stopped when the last worker has returned. Default: not
	// called.
	Started, Stopped func()
}

// AddTo adds the controller to the manager of the term.
func (r Registration[T]) AddTo(mgr ctrl.Manager) error {
	o := controller.TypedOptions[T]{Reconciler: whileCurrent[T]{r.Reconciler, r.Store},
		MaxConcurrentReconciles: r.Workers}
	o.SkipNameValidation = new(true) // the next term uses the name again
	o.DefaultFromConfig(mgr.GetControllerOptions())
	c, err := controller.NewTypedUnmanaged(r.Name, o)
	if err != nil {
		return fmt.Errorf("make controller %s: %w", r.Name, err)
	}
	err = c.Watch(source.TypedFunc[T](func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[T]) error {
		r.Queue.current.Store(&queue)
		context.AfterFunc(ctx, r.Store.Subscribe(r.Changed))
		return nil
	}))
	if err != nil {
		return fmt.Errorf("watch for controller %s: %w", r.Name, err)
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if r.Started != nil {
			r.Started()
		}
		if r.Stopped != nil {
			defer r.Stopped()
		}
		if r.Store.Until(ctx, func(s *snapshot.Snapshot) bool { return s.Synced(r.Kinds...) }) != nil {
			return nil // the term has ended
		}
		if r.Ready != nil && r.Ready(ctx) != nil {
			return nil
		}
		return c.Start(ctx)
	}))
}

// staleRetry is the requeue delay while a kind is stale.
const staleRetry = time.Second

// whileCurrent reconciles nothing while a kind is stale: what policies and Constraints forbid may have changed since.
type whileCurrent[T comparable] struct {
	reconcile.TypedReconciler[T]
	store *snapshot.Store
}

// Reconcile implements reconcile.TypedReconciler.
func (w whileCurrent[T]) Reconcile(ctx context.Context, item T) (reconcile.Result, error) {
	if stale := w.store.Stale(); len(stale) > 0 {
		log.FromContext(ctx).V(1).Info("watch stale, nothing is done until it shows progress",
			"resources", snapshot.Names(stale))
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	}
	return w.TypedReconciler.Reconcile(ctx, item)
}
