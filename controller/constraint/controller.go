package constraint

import (
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

// Controller reconciles Constraints on the leader. All fields are required unless they have a default.
type Controller struct {
	// Store provides the snapshot that admission judges by.
	Store *snapshot.Store
	// Metrics export what installed operators violate, Writes count the writes.
	Metrics *Metrics
	Writes  *apply.Metrics
	// Grants are the rights that the installation withholds. Default: none.
	Grants grant.Set
	// Escaped returns the number of refused operators that were installed while Opgate was not running.
	Escaped func(constraint string) int
	// ExceptionEnd exports when the first exception in force of a Constraint ends; zero if none is.
	ExceptionEnd func(kind string, name types.NamespacedName, end time.Time)
	// Events records exceptions that end soon or have ended. Default: nothing is recorded.
	Events *events.Recorder
	// Log receives writes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock.
	Now func() time.Time

	queue manager.Queue[work]
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

// AddTo adds the controller to the manager of the leader.
func (c *Controller) AddTo(mgr ctrl.Manager) error {
	return manager.Registration[work]{
		Name: "constraint",
		Reconciler: &reconciler{Controller: c, wanted: wanted{missing: c.Grants.Missing(grant.VirtualOperators)},
			writer: apply.Writer{Client: mgr.GetClient(), Store: c.Store, Metrics: c.Writes}},
		Workers: workers,
		Queue:   &c.queue,
		Store:   c.Store,
		Changed: c.changed,
	}.AddTo(mgr)
}
