package constraint

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/snapshot"
)

const (
	// workers is the number of namespaces and statuses that are reconciled concurrently.
	workers = 4
	// gathering is how long the events of namespaces are batched before operators are counted again: an installation causes
	// a dozen events.
	gathering = time.Second
	// soon is the delay for batching virtual operators of a Constraint before they are counted.
	soon = 100 * time.Millisecond
)

// Options configure the Controller.
type Options struct {
	// Store provides the snapshot that admission judges by. Required.
	Store *snapshot.Store
	// Metrics export what installed operators violate. Required.
	Metrics *Metrics
	// Wrote is called after every write with its result. Default: not called.
	Wrote func(verb, kind string, err error)
	// Escaped returns the number of refused operators that were installed while Opgate was not running. Default: none.
	Escaped func(constraint string) int
	// Log receives writes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

// Controller reconciles Constraints while this replica leads.
type Controller struct {
	options Options

	mu sync.Mutex
	// queue is that of the manager that leads now; nil if none does.
	queue       queue
	unsubscribe func()
}

// New returns a Controller. AddTo adds it to a manager.
func New(o Options) (*Controller, error) {
	if o.Store == nil || o.Metrics == nil || o.Now == nil {
		return nil, errors.New("constraint controller options: Store, Metrics and Now are required")
	}
	if o.Wrote == nil {
		o.Wrote = func(string, string, error) {}
	}
	if o.Escaped == nil {
		o.Escaped = func(string) int { return 0 }
	}
	return &Controller{options: o}, nil
}

// Everything enqueues all namespaces and statuses. It does not block.
func (c *Controller) Everything() { c.add(work{subject: everything}, 0) }

// changed enqueues what a change of the snapshot affects.
func (c *Controller) changed(change *snapshot.Change) {
	for _, name := range change.Namespaces {
		if name != "" {
			c.add(work{namespace, name}, 0)
		}
	}
	if len(change.Namespaces) > 0 {
		c.add(work{subject: statuses}, gathering)
	}
	if change.Constraints {
		c.Everything()
	}
}

func (c *Controller) add(w work, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue == nil {
		return
	}
	if after > 0 {
		c.queue.AddAfter(w, after)
	} else {
		c.queue.Add(w)
	}
}

// follow sets the queue of the manager that leads now, nil for none, and ends the subscription of the last one.
func (c *Controller) follow(q queue, unsubscribe func()) {
	c.mu.Lock()
	last := c.unsubscribe
	c.queue, c.unsubscribe = q, unsubscribe
	c.mu.Unlock()
	if last != nil {
		last()
	}
}

// AddTo adds the controller to a manager, to run while it leads. The store must have a snapshot before the manager starts. AddTo
// may be called for one manager after another.
func (c *Controller) AddTo(mgr manager.Manager) error {
	if err := constraintv1.AddToScheme(mgr.GetScheme()); err != nil {
		return err
	}
	r := &reconciler{Options: &c.options, client: mgr.GetClient(), add: c.add}
	ctrl, err := controller.NewTyped("constraint", mgr, controller.TypedOptions[work]{
		Reconciler:              r,
		MaxConcurrentReconciles: workers,
		SkipNameValidation:      new(true), // the name is used again after a lease was lost
	})
	if err != nil {
		return fmt.Errorf("make the controller of Constraints: %w", err)
	}
	err = ctrl.Watch(source.TypedFunc[work](func(_ context.Context, q queue) error {
		c.options.Metrics.started()
		_, unsubscribe := c.options.Store.Subscribe(c.changed)
		c.follow(q, unsubscribe)
		c.Everything()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		c.follow(nil, nil)
		c.options.Metrics.stopped()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("add the controller of Constraints: %w", err)
	}
	return nil
}
