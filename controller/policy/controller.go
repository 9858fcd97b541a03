package policy

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// keyPeriod is the interval in which the key of marks is checked until it is known.
const keyPeriod = 100 * time.Millisecond

type (
	storedPolicy = snapshot.Policy
	storedSet    = snapshot.PolicySet

	// work is one item of the queue.
	work struct {
		subject subject
		types.NamespacedName
	}
	subject string
)

const (
	policy subject = "policy"
	set    subject = "set"
)

// Controller reconciles Policies and PolicySets while this replica leads.
type Controller struct {
	Options
	queue manager.Queue[work]
}

// New returns a Controller. AddTo adds it to a manager.
func New(o Options) (*Controller, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	return &Controller{Options: o}, nil
}

// AddTo adds the controller to a manager, to run while it leads. It may be called for one manager after another: each
// has watches of its own.
func (c *Controller) AddTo(mgr ctrl.Manager) error {
	objects, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make a client of template objects: %w", err)
	}
	r := &reconciler{Controller: c, objects: objects,
		budget: budget{shared: dependency.NewBudget(dependency.DefaultLimits)},
		writer: apply.Writer{Client: mgr.GetClient(), Store: c.Store, Metrics: c.Writes}}
	r.watches, err = watches.New(watches.Options{Client: objects, Notify: r.notify, Gatekeeper: c.Gatekeeper,
		Log: c.Log})
	if err != nil {
		return err
	}
	if err := mgr.Add(r.watches); err != nil {
		return fmt.Errorf("add the watches of Policies: %w", err)
	}
	return manager.Registration[work]{
		Name:       "ordering",
		Reconciler: r,
		Workers:    c.Workers,
		Queue:      &c.queue,
		Store:      c.Store,
		Changed:    r.changed,
		Kinds:      []*snapshot.Kind{snapshot.Policies, snapshot.PolicySets, snapshot.CustomResourceDefinitions},
		Ready: func(ctx context.Context) error {
			return wait.PollUntilContextCancel(ctx, keyPeriod, true,
				func(context.Context) (bool, error) { return len(c.Key()) > 0, nil })
		},
		Started: func() { c.Metrics.started(r.watches.Open) },
		Stopped: c.Metrics.stopped,
	}.AddTo(mgr)
}
