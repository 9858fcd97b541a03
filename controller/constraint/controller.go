package constraint

import (
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/snapshot"
)

const (
	// workers is the number of namespaces and statuses that are reconciled concurrently.
	workers = 4
	// eventBatch is how long the events of namespaces are batched before operators are counted again: an installation
	// causes a dozen events.
	eventBatch = time.Second
	// writeBatch is how long writes of a Constraint's virtual operators are batched before they are counted.
	writeBatch = 100 * time.Millisecond
	// resyncDelay is long enough for a virtual operator to reach OLM's cache.
	resyncDelay = time.Second
)

// Options configure the Controller.
type Options struct {
	// Store provides the snapshot that admission judges by. Required.
	Store *snapshot.Store
	// Metrics export what installed operators violate, Writes count the writes. Required.
	Metrics *Metrics
	Writes  *apply.Metrics
	// Grants are the rights that the installation withholds. Default: none.
	Grants grant.Set
	// Escaped returns the number of refused operators that were installed while Opgate was not running. Default: none.
	Escaped func(constraint string) int
	// ExceptionEnd exports when the first exception in force of a Constraint ends; zero if none is. Default: nothing is
	// exported.
	ExceptionEnd func(kind string, name types.NamespacedName, end time.Time)
	// Events records exceptions that end soon or have ended. Default: nothing is recorded.
	Events *events.Recorder
	// Log receives writes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

// Controller reconciles Constraints while this replica leads.
type Controller struct {
	Options
	queue manager.Queue[work]
}

// New returns a Controller. AddTo adds it to a manager.
func New(o Options) (*Controller, error) {
	if o.Store == nil || o.Metrics == nil || o.Writes == nil || o.Now == nil {
		return nil, errors.New("constraint controller options: Store, Metrics, Writes and Now are required")
	}
	if o.Escaped == nil {
		o.Escaped = func(string) int { return 0 }
	}
	if o.ExceptionEnd == nil {
		o.ExceptionEnd = func(string, types.NamespacedName, time.Time) {}
	}
	return &Controller{Options: o}, nil
}

// Everything enqueues all namespaces and statuses. It does not block.
func (c *Controller) Everything() { c.queue.Add(work{kind: everything}) }

// changed enqueues what a change of the snapshot affects.
func (c *Controller) changed(change *snapshot.Change) {
	for _, name := range change.Namespaces {
		if name != "" {
			c.queue.Add(work{namespace, name})
		}
	}
	if len(change.Namespaces) > 0 {
		c.queue.AddAfter(work{kind: statuses}, eventBatch)
	}
	if change.Constraints {
		c.Everything()
	}
}

// AddTo adds the controller to a manager, to run while it leads. It may be called for one manager after another.
func (c *Controller) AddTo(mgr ctrl.Manager) error {
	return manager.Registration[work]{
		Name: "constraint",
		Reconciler: &reconciler{Controller: c, wanted: wanted{missing: c.Grants.Missing(grant.VirtualOperators)},
			writer: apply.Writer{Client: mgr.GetClient(), Store: c.Store, Metrics: c.Writes}},
		Workers: workers,
		Queue:   &c.queue,
		Store:   c.Store,
		Changed: c.changed,
		Stopped: c.Metrics.stopped,
	}.AddTo(mgr)
}
