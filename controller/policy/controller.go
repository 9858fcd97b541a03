package policy

import (
	"context"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/rules/dependency"
)

// Controller reconciles Policies and PolicySets while this replica leads.
type Controller struct{ options Options }

// New returns a Controller. AddTo adds it to a manager.
func New(o Options) (*Controller, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	return &Controller{options: o}, nil
}

// AddTo adds the controller to a manager, to run while it leads. It may be called for one manager after another: each has caches
// and watches of its own.
func (c *Controller) AddTo(mgr manager.Manager) error {
	if err := corev1.AddToScheme(mgr.GetScheme()); err != nil { // for events
		return err
	}
	objects, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make a client of template objects: %w", err)
	}
	heads, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make a client of Policies: %w", err)
	}
	wake := &waker{store: c.options.Store, metrics: c.options.Metrics, key: c.options.Key}
	wake.watches, err = watches.New(watches.Options{Client: objects, Notify: wake.notify, Gatekeeper: c.options.Gatekeeper, Log: c.options.Log})
	if err != nil {
		return err
	}
	r := &reconciler{Options: &c.options, watches: wake.watches, wake: wake, budget: budget{shared: dependency.NewBudget(dependency.DefaultLimits)}, objects: objects, heads: heads, client: mgr.GetClient()}
	ctrl, err := controller.NewTyped("ordering", mgr, controller.TypedOptions[work]{
		Reconciler:              r,
		MaxConcurrentReconciles: c.options.Workers,
		SkipNameValidation:      new(true), // the name is used again after a lease was lost
		// The CRDs may be installed after Opgate: the controller waits for them.
		CacheSyncTimeout: math.MaxInt64,
	})
	if err != nil {
		return fmt.Errorf("make the controller of Policies: %w", err)
	}
	if err := ctrl.Watch(wake); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		defer wake.stop()
		return wake.watches.Start(ctx)
	}))
	if err != nil {
		return fmt.Errorf("add the controller of Policies: %w", err)
	}
	return nil
}
