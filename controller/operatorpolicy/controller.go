package operatorpolicy

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
)

// Controller reconciles OperatorPolicies, by namespace, while this replica leads.
type Controller struct {
	Options
	// queue has namespaces; "" stands for the policies that govern nothing yet.
	queue manager.Queue[string]
	// unrecorded outlives a term of leadership, which may end before a status is written.
	unrecorded unrecorded
}

// New returns a Controller. AddTo adds it to a manager.
func New(o Options) (*Controller, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	return &Controller{Options: o}, nil
}

// AddTo adds the controller to a manager, to run while it leads. It may be called for one manager after another.
func (c *Controller) AddTo(mgr ctrl.Manager) error {
	writer := apply.Writer{Client: mgr.GetClient(), Store: c.Store, Metrics: c.Writes}
	r := &reconciler{Controller: c, writer: writer, reader: mgr.GetAPIReader()}
	return manager.Registration[string]{
		Name:       "operatorpolicy",
		Reconciler: r,
		Workers:    c.Workers,
		Queue:      &c.queue,
		Store:      c.Store,
		Changed:    r.changed,
		Kinds:      statusKinds,
		Stopped:    c.Metrics.stopped,
	}.AddTo(mgr)
}
