package escape

import (
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

// Controller detects escapes on the leader. All fields are required unless they have a default.
type Controller struct {
	// Store provides the snapshot that admission judges by.
	Store *snapshot.Store
	// Records are the known escapes.
	Records *Records
	// ExcludedNamespaces are those that the webhook configurations exclude.
	ExcludedNamespaces []string
	// Writes count the writes. Required.
	Writes *apply.Metrics
	// Events records what was found, on ClusterServiceVersions. Default: nothing is recorded.
	Events *events.Recorder
	// Changed is called with the namespace of an escape that was found, or that is resolved.
	Changed func(namespace string)
	// Log receives writes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock.
	Now func() time.Time

	queue manager.Queue[types.NamespacedName]
	// started returns when this process had its first snapshot, which is the time of the first call.
	started func() time.Time
}

// AddTo adds the controller to the manager of the leader.
func (c *Controller) AddTo(mgr ctrl.Manager) error {
	c.started = sync.OnceValue(c.Now)
	c.Store.Subscribe(func(*snapshot.Change) { c.started() })
	r := &reconciler{Controller: c, reader: mgr.GetAPIReader(),
		outage: c.Records.lease.LastRenewal, judged: map[types.UID]bool{}}
	return manager.Registration[types.NamespacedName]{
		Name:       "escape",
		Reconciler: r,
		Queue:      &c.queue,
		Store:      c.Store,
		Changed:    r.changed,
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
