package escape

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/snapshot"
)

const (
	// skew is the tolerated difference between the clocks of replicas and of the API server. Within it, objects are
	// judged again.
	skew = 5 * time.Second
	// settling is the time after its start in which a replica may not receive reviews yet: endpoints and proxies follow
	// its readiness.
	settling = time.Minute
)

// Options configure the Controller.
type Options struct {
	// Store provides the snapshot that admission judges by. Required.
	Store *snapshot.Store
	// Records are the known escapes. Required.
	Records *Records
	// ExcludedNamespaces are those that the webhook configurations exclude.
	ExcludedNamespaces []string
	// Writes count the writes. Required.
	Writes *apply.Metrics
	// Events records what was found, on ClusterServiceVersions. Default: nothing is recorded.
	Events *events.Recorder
	// Changed is called with the namespace of an escape that was found, or that is resolved. Default: not called.
	Changed func(namespace string)
	// Log receives writes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

// Controller detects escapes while this replica leads.
type Controller struct {
	Options
	queue manager.Queue[types.NamespacedName]
	// ready returns when this process had its first snapshot, which is the time of the first call.
	ready func() time.Time
}

// New returns a Controller. AddTo adds it to a manager.
func New(o Options) (*Controller, error) {
	if o.Store == nil || o.Records == nil || o.Writes == nil || o.Now == nil {
		return nil, errors.New("escape controller options: Store, Records, Writes and Now are required")
	}
	if o.Changed == nil {
		o.Changed = func(string) {}
	}
	return &Controller{Options: o, ready: sync.OnceValue(o.Now)}, nil
}

// AddTo adds the controller to a manager, to run while it leads. The store must have a snapshot. AddTo may be called
// for one manager after another.
func (c *Controller) AddTo(mgr ctrl.Manager) error {
	r := &reconciler{Controller: c, reader: mgr.GetAPIReader(),
		outage: c.Records.lease.LastRenewal, until: c.ready().Add(settling), judged: map[types.UID]bool{}}
	return manager.Registration[types.NamespacedName]{
		Name:       "escape",
		Reconciler: r,
		Queue:      &c.queue,
		Store:      c.Store,
		Changed:    r.changed,
		Started:    c.Records.export,
		Stopped:    func() { c.Records.gauge.Reset(); c.Writes.Stopped("escapes") },
	}.AddTo(mgr)
}

// changed enqueues the escapes, and the candidates, in namespaces that changed, and all escapes if Constraints changed.
func (r *reconciler) changed(change *snapshot.Change) {
	for _, name := range change.Namespaces {
		for _, o := range change.Snapshot.Objects(snapshot.ClusterServiceVersions, snapshot.InNamespace(name)) {
			if r.candidate(o) {
				r.queue.Add(o.Key())
			}
		}
	}
	for _, one := range *r.Records.all.Load() {
		if _, changed := slices.BinarySearch(change.Namespaces, one.Namespace); changed || change.Constraints {
			r.queue.Add(one.key())
		}
	}
}
