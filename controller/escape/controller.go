package escape

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/opgate/opgate/admission"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// Mode says what becomes of an escape.
type Mode string

const (
	// Report reports it.
	Report Mode = "report"
	// Remove also deletes it, where that is safe.
	Remove Mode = "remove"
)

const (
	// skew is how far the clocks of replicas and of the API server may differ. Where they differ by less, what was judged is judged again.
	skew = 5 * time.Second
	// settling is how long after its start a replica may not be called yet: endpoints and proxies follow its readiness.
	settling = time.Minute
)

// Options configure the Controller.
type Options struct {
	// Store has the snapshot that admission judges by. Required.
	Store *admission.Store
	// Lease is that of the background loop. Required.
	Lease *Lease
	// Mode says what becomes of an escape. Default: Report.
	Mode Mode
	// ExcludedNamespaces are those that the webhook configurations leave out.
	ExcludedNamespaces []string
	// Metrics count escapes. Required.
	Metrics *Metrics
	// Identity names this process in events. Default: none.
	Identity string
	// Changed is called with the namespace of an escape that was found, or that is none any more. Default: nothing.
	Changed func(namespace string)
	// Wrote is called with every write and its error. Default: nothing.
	Wrote func(verb, kind string, err error)
	// Log takes writes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

// Controller looks for escapes while this replica leads.
type Controller struct {
	options Options

	mu sync.Mutex
	// ready is when this process had its first snapshot.
	ready time.Time
	// queue is that of the manager that leads now; nil while none does.
	queue queue
}

type queue = workqueue.TypedRateLimitingInterface[types.NamespacedName]

// New makes a Controller. AddTo runs it.
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

// Records are the escapes. They are read from the Lease when this replica starts to lead.
func (l *Lease) Records() *Records { return &l.records }

// Namespaces enqueues the escapes of namespaces in which something has changed. It returns at once.
func (c *Controller) Namespaces(names []string) {
	changed := map[string]bool{}
	for _, name := range names {
		changed[name] = true
	}
	c.enqueue(func(one *record) bool { return changed[one.Namespace] })
}

// Everything enqueues all escapes, for when Constraints have changed. It returns at once.
func (c *Controller) Everything() { c.enqueue(func(*record) bool { return true }) }

func (c *Controller) enqueue(which func(*record) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue == nil {
		return
	}
	for _, one := range c.options.Lease.records.list() {
		if which(&one) {
			c.queue.Add(one.key())
		}
	}
}

func (c *Controller) follow(q queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = q
}

// started returns when this process had its first snapshot, which is the first time that it is asked.
func (c *Controller) started() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ready.IsZero() {
		c.ready = c.options.Now()
	}
	return c.ready
}

// AddTo adds the controller to a manager whose leader works. There must be a snapshot. It may be added to one manager after another.
func (c *Controller) AddTo(mgr manager.Manager) error {
	r := &reconciler{Options: &c.options, cache: mgr.GetCache(), reader: mgr.GetAPIReader(), client: mgr.GetClient(), until: c.started().Add(settling),
		proven: provenBy(c.options.Store.Load()), judged: map[types.UID]bool{}}
	ctrl, err := controller.NewTyped("escape", mgr, controller.TypedOptions[types.NamespacedName]{
		Reconciler:              r,
		MaxConcurrentReconciles: 1,
		SkipNameValidation:      new(true), // there is one again after a lease was lost
		// OLM may be installed after Opgate: its kinds are waited for.
		CacheSyncTimeout: math.MaxInt64,
	})
	if err != nil {
		return fmt.Errorf("make the controller of escapes: %w", err)
	}
	for _, s := range []source.TypedSource[types.NamespacedName]{source.TypedFunc[types.NamespacedName](func(_ context.Context, q queue) error {
		c.options.Metrics.started()
		c.options.Metrics.set(c.options.Lease.records.list())
		c.follow(q)
		c.Everything()
		return nil
	}), r.watchCSVs()} {
		if err := ctrl.Watch(s); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		c.follow(nil)
		c.options.Metrics.stopped()
		return nil
	}))
}

// watchCSVs enqueues ClusterServiceVersions that were created during the outage, and those that are recorded.
func (r *reconciler) watchCSVs() source.TypedSource[types.NamespacedName] {
	add := func(q queue, u *unstructured.Unstructured) {
		key := client.ObjectKeyFromObject(u)
		if _, recorded := r.Lease.records.get(key); recorded || r.candidate(u) {
			q.Add(key)
		}
	}
	return source.TypedKind(r.cache, csvKind(), handler.TypedFuncs[*unstructured.Unstructured, types.NamespacedName]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*unstructured.Unstructured], q queue) {
			add(q, e.Object)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*unstructured.Unstructured], q queue) {
			add(q, e.Object)
		},
	})
}

func csvKind() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(olm.ClusterServiceVersionGVK)
	return u
}

// provenBy returns the generations in which policies and Constraints were in force before this process started: Opgate writes
// status.observedGeneration only while it runs, and the API server refuses changes of them while it does not.
func provenBy(snapshot *admission.Snapshot) map[rules.PolicyRef]int64 {
	proven := map[rules.PolicyRef]int64{}
	for _, c := range snapshot.ConstraintObjects() {
		if c.Status.ObservedGeneration == c.Generation {
			proven[rules.PolicyRef{Kind: rules.KindConstraint, Name: c.Name}] = c.Generation
		}
	}
	for ns := range snapshot.All() {
		for _, p := range ns.Policies() {
			if p.Object != nil && p.Object.Status.ObservedGeneration == p.Object.Generation {
				proven[rules.PolicyRef{Kind: rules.KindOperatorPolicy, Namespace: p.Namespace, Name: p.Name}] = p.Object.Generation
			}
		}
	}
	return proven
}
