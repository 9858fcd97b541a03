package constraint

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/opgate/opgate/admission"
	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/controller/constraint/virtual"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

const (
	// workers is how many namespaces and statuses are worked on at once.
	workers = 4
	// gathering is how long what happens in namespaces is gathered before it is counted again: an installation is a
	// dozen events.
	gathering = time.Second
	// soon is how long to wait for other virtual operators of a Constraint before they are counted.
	soon = 100 * time.Millisecond
)

// Options configure the Controller.
type Options struct {
	// Store gives the snapshot that admission judges by. Required.
	Store *admission.Store
	// Metrics show what installed operators violate. Required.
	Metrics *Metrics
	// Wrote is told of every write and what became of it. Default: nobody is told.
	Wrote func(verb, kind string, err error)
	// Escaped counts the operators that were installed while Opgate was not running and that a Constraint refuses. Default: none.
	Escaped func(constraint string) int
	// Log takes writes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

// Controller looks after Constraints while this replica leads.
type Controller struct {
	options Options

	mu sync.Mutex
	// queue is that of the manager that leads now; nil while none does.
	queue queue
}

// New makes a Controller. AddTo has it run.
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

// Changed has everything looked at again, for when Constraints, what is known of the cluster, or labels of namespaces
// have changed. It returns at once.
func (c *Controller) Changed() {
	c.add(work{subject: everything}, 0)
}

// Namespaces has namespaces looked at again in which something has changed. It returns at once.
func (c *Controller) Namespaces(names []string) {
	for _, name := range names {
		if name != "" {
			c.add(work{namespace, name}, 0)
		}
	}
	c.add(work{subject: statuses}, gathering)
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

func (c *Controller) follow(q queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = q
}

// AddTo adds the controller to a manager whose leader works. There must be a snapshot before the manager starts. It
// may be added to one manager after another.
func (c *Controller) AddTo(mgr manager.Manager) error {
	if err := constraintv1.AddToScheme(mgr.GetScheme()); err != nil {
		return err
	}
	// A cache of its own: that of the manager has all ClusterServiceVersions, without what is compared here. This one
	// has next to none, since the API server selects them.
	labelled, err := labels.NewRequirement(rules.VirtualOperatorLabel, selection.Exists, nil)
	if err != nil {
		return err
	}
	operators, err := cache.New(mgr.GetConfig(), cache.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultLabelSelector: labels.NewSelector().Add(*labelled), DefaultTransform: func(obj any) (any, error) {
			if u, ok := obj.(*unstructured.Unstructured); ok {
				return virtual.Kept(u), nil
			}
			return obj, nil
		}})
	if err != nil {
		return fmt.Errorf("make the cache of virtual operators: %w", err)
	}
	r := &reconciler{Options: &c.options, operators: operators, client: mgr.GetClient(), add: c.add}
	ctrl, err := controller.NewTyped("constraint", mgr, controller.TypedOptions[work]{
		Reconciler:              r,
		MaxConcurrentReconciles: workers,
		SkipNameValidation:      new(true), // there is one again after a lease was lost
		// OLM may be installed after Opgate: its kinds are waited for.
		CacheSyncTimeout: math.MaxInt64,
	})
	if err != nil {
		return fmt.Errorf("make the controller of Constraints: %w", err)
	}
	for _, s := range []source.TypedSource[work]{source.TypedFunc[work](func(_ context.Context, q queue) error {
		c.options.Metrics.started()
		c.follow(q)
		q.Add(work{subject: everything})
		return nil
	}), watchOperators(operators)} {
		if err := ctrl.Watch(s); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
	}
	for _, runnable := range []manager.Runnable{operators, manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		c.follow(nil)
		c.options.Metrics.stopped()
		return nil
	})} {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("add %T: %w", runnable, err)
		}
	}
	return nil
}

// watchOperators wakes the loop for the namespace of a virtual operator that changed, and for the status of the
// Constraint that it was made for.
func watchOperators(operators cache.Cache) source.TypedSource[work] {
	add := func(q queue, u *unstructured.Unstructured) {
		q.Add(work{namespace, u.GetNamespace()})
		if name := virtual.ConstraintOf(u); name != "" {
			q.AddAfter(work{status, name}, soon)
		}
	}
	return source.TypedKind(operators, operatorKind(), handler.TypedFuncs[*unstructured.Unstructured, work]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*unstructured.Unstructured], q queue) {
			add(q, e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*unstructured.Unstructured], q queue) {
			if !same(e.ObjectOld, e.ObjectNew) {
				add(q, e.ObjectNew)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*unstructured.Unstructured], q queue) {
			add(q, e.Object)
		},
	})
}

func operatorKind() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(olm.ClusterServiceVersionGVK)
	return u
}

// same tells whether nothing that is kept has changed but the resourceVersion.
func same(a, b *unstructured.Unstructured) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	a.SetResourceVersion("")
	b.SetResourceVersion("")
	return equality.Semantic.DeepEqual(a.Object, b.Object)
}
