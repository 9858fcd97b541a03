package escape

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// Mode is what to do with an escape.
type Mode string

const (
	// Report reports it.
	Report Mode = "report"
	// Remove also deletes it, if that is safe.
	Remove Mode = "remove"
)

const (
	// skew is the tolerated difference between the clocks of replicas and of the API server. Within it, objects are judged again.
	skew = 5 * time.Second
	// settling is the time after its start in which a replica may not receive reviews yet: endpoints and proxies follow its readiness.
	settling = time.Minute
)

var gvkCSV = snapshot.ClusterServiceVersions.GroupVersionKind

// Options configure the Controller.
type Options struct {
	// Store provides the snapshot that admission judges by. Required.
	Store *snapshot.Store
	// Lease is that of the background loop. Required.
	Lease *Lease
	// Mode is what to do with an escape. Default: Report.
	Mode Mode
	// ExcludedNamespaces are those that the webhook configurations exclude.
	ExcludedNamespaces []string
	// Metrics count escapes. Required.
	Metrics *Metrics
	// Identity names this process in events. Default: none.
	Identity string
	// Changed is called with the namespace of an escape that was found, or that is resolved. Default: not called.
	Changed func(namespace string)
	// Wrote is called after every write with its error. Default: not called.
	Wrote func(verb, kind string, err error)
	// Log receives writes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

// Controller detects escapes while this replica leads.
type Controller struct {
	options Options

	mu sync.Mutex
	// ready is when this process had its first snapshot.
	ready time.Time
	// queue is that of the manager that leads now; nil if none does.
	queue       queue
	unsubscribe func()
}

type queue = workqueue.TypedRateLimitingInterface[types.NamespacedName]

// New returns a Controller. AddTo adds it to a manager.
func New(o Options) (*Controller, error) {
	if o.Store == nil || o.Lease == nil || o.Metrics == nil || o.Now == nil {
		return nil, errors.New("escape controller options: Store, Lease, Metrics and Now are required")
	}
	if o.Changed == nil {
		o.Changed = func(string) {}
	}
	if o.Wrote == nil {
		o.Wrote = func(string, string, error) {}
	}
	return &Controller{options: o}, nil
}

// Records returns the escapes. They are read from the Lease when this replica starts to lead.
func (l *Lease) Records() *Records { return &l.records }

// changed enqueues the escapes, and the candidates, in namespaces that changed, and all escapes if Constraints changed.
func (c *Controller) changed(r *reconciler, change *snapshot.Change) {
	for _, name := range change.Namespaces {
		for _, o := range change.Snapshot.Objects(snapshot.ClusterServiceVersions, snapshot.InNamespace(name)) {
			if r.candidate(o) {
				c.add(o.Key())
			}
		}
	}
	for _, one := range c.options.Lease.records.list() {
		if _, changed := slices.BinarySearch(change.Namespaces, one.Namespace); changed || change.Constraints {
			c.add(one.key())
		}
	}
}

func (c *Controller) add(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue != nil {
		c.queue.Add(key)
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

// started returns when this process had its first snapshot, which is the time of the first call.
func (c *Controller) started() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ready.IsZero() {
		c.ready = c.options.Now()
	}
	return c.ready
}

// AddTo adds the controller to a manager, to run while it leads. The store must have a snapshot. AddTo may be called for one manager
// after another.
func (c *Controller) AddTo(mgr manager.Manager) error {
	r := &reconciler{Options: &c.options, reader: mgr.GetAPIReader(), client: mgr.GetClient(), until: c.started().Add(settling),
		proven: provenBy(c.options.Store.Load()), judged: map[types.UID]bool{}}
	ctrl, err := controller.NewTyped("escape", mgr, controller.TypedOptions[types.NamespacedName]{
		Reconciler:              r,
		MaxConcurrentReconciles: 1,
		SkipNameValidation:      new(true), // the name is used again after a lease was lost
	})
	if err != nil {
		return fmt.Errorf("make the controller of escapes: %w", err)
	}
	err = ctrl.Watch(source.TypedFunc[types.NamespacedName](func(_ context.Context, q queue) error {
		c.options.Metrics.started()
		c.options.Metrics.set(c.options.Lease.records.list())
		c.follow(q, nil) // first, so that no change is lost
		current, unsubscribe := c.options.Store.Subscribe(func(change *snapshot.Change) { c.changed(r, change) })
		c.follow(q, unsubscribe)
		for o := range current.Each(snapshot.ClusterServiceVersions) {
			if r.candidate(o) {
				c.add(o.Key())
			}
		}
		for _, one := range c.options.Lease.records.list() {
			c.add(one.key())
		}
		return nil
	}))
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		c.follow(nil, nil)
		c.options.Metrics.stopped()
		return nil
	}))
}

func csvKind() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(olm.ClusterServiceVersionGVK)
	return u
}

// provenBy returns the generations in which policies and Constraints were in force before this process started: Opgate writes
// status.observedGeneration only while it runs, and the API server refuses changes of them while it does not.
func provenBy(current *snapshot.Snapshot) map[rules.PolicyRef]int64 {
	proven := map[rules.PolicyRef]int64{}
	for _, c := range current.ConstraintObjects() {
		if c.Status.ObservedGeneration == c.Generation {
			proven[rules.PolicyRef{Kind: rules.KindConstraint, Name: c.Name}] = c.Generation
		}
	}
	for ns := range current.All() {
		for _, p := range ns.Policies() {
			if p.Object != nil && p.Object.Status.ObservedGeneration == p.Object.Generation {
				proven[rules.PolicyRef{Kind: rules.KindOperatorPolicy, Namespace: p.Namespace, Name: p.Name}] = p.Object.Generation
			}
		}
	}
	return proven
}
