package operatorpolicy

import (
	"context"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/olm"
)

const (
	// LeaseName is the Lease that the leading replica holds.
	LeaseName = "opgate-loop"
	// restartDelay keeps a loop that cannot start, or lost its lease, from trying at once.
	restartDelay = 5 * time.Second
	// firstSnapshotInterval is how often to look, at the start, whether there is a snapshot.
	firstSnapshotInterval = 50 * time.Millisecond
)

// Loop is the background loop.
type Loop struct{ options Options }

// New makes a loop. Start runs it.
func New(o Options) (*Loop, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	return &Loop{options: o}, nil
}

// NeedLeaderElection is false: the loop sees to that itself.
func (l *Loop) NeedLeaderElection() bool { return false }

// Start waits for the lease and runs the loop until the context ends. It has a manager of its own, which ends
// when the lease is lost and is then made anew: a replica that may not write for a while goes on judging.
func (l *Loop) Start(ctx context.Context) error {
	// Without a snapshot there is nothing to work on, and nothing below would have to ask whether there is one.
	_ = wait.PollUntilContextCancel(ctx, firstSnapshotInterval, true, func(context.Context) (bool, error) { return l.options.Store.Load() != nil, nil })
	for ctx.Err() == nil {
		if err := l.lead(ctx); err != nil {
			l.options.Log.Error(err, "the background loop ended, it is started again", "after", restartDelay.String())
			_ = wait.PollUntilContextTimeout(ctx, restartDelay, 2*restartDelay, false, func(context.Context) (bool, error) { return true, nil })
		}
	}
	return nil
}

// lead runs one manager.
func (l *Loop) lead(ctx context.Context) error {
	o := &l.options
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, policyv1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	httpClient, err := rest.HTTPClientFor(o.Config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	informer, err := newInformer(o.Config, httpClient)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	mgr, err := manager.New(o.Config, manager.Options{
		Scheme:                              scheme,
		Logger:                              o.Log,
		Metrics:                             metricsserver.Options{BindAddress: "0"}, // served by the process
		HealthProbeBindAddress:              "0",
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: o.Lock(),
		LeaderElectionReleaseOnCancel:       true,
		Cache:                               cache.Options{DefaultTransform: trim, NewInformer: informer},
	})
	if err != nil {
		return fmt.Errorf("make the manager of the loop: %w", err)
	}
	r := &reconciler{Options: o, cache: mgr.GetCache(), client: mgr.GetClient()}
	c, err := controller.NewTyped("operatorpolicy", mgr, controller.TypedOptions[string]{
		Reconciler:              r,
		MaxConcurrentReconciles: o.Workers,
		SkipNameValidation:      new(true), // there is one again after a lease was lost
		// OLM may be installed after Opgate: its kinds are waited for.
		CacheSyncTimeout: math.MaxInt64,
	})
	if err != nil {
		return fmt.Errorf("make the loop: %w", err)
	}
	for _, s := range r.sources() {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
	}
	for _, other := range o.Also {
		if err := other.AddTo(mgr); err != nil {
			return err
		}
	}
	defer o.Changes.follow(nil)
	defer o.Metrics.stopped()
	return mgr.Start(ctx)
}

type (
	queue   = workqueue.TypedRateLimitingInterface[string]
	watched = source.TypedSource[string]
)

// sources are what wakes the loop. All of it ends in the name of a namespace with policies.
func (r *reconciler) sources() []watched {
	inNamespace := func(o client.Object) []string { return append(r.origins.take(o.GetNamespace()), o.GetNamespace()) }
	return []watched{
		source.TypedFunc[string](func(_ context.Context, q queue) error {
			r.Metrics.leading.Set(1)
			r.Changes.follow(func(namespace string) {
				q.Add(namespace)
				for _, dependent := range r.origins.take(namespace) {
					q.Add(dependent)
				}
			})
			for ns := range r.Store.Load().All() {
				q.Add(ns.Name())
			}
			return nil
		}),
		r.watch(whole(gvkSubscription), inNamespace),
		r.watch(whole(gvkOperatorGroup), inNamespace),
		r.watch(whole(gvkCSV), inNamespace),
		r.watch(whole(gvkDeployment), inNamespace),
		r.watch(headOnly(gvkNamespace), func(o client.Object) []string { return []string{o.GetName()} }),
		r.watch(headOnly(gvkCRD), r.ownersOf),
		r.watch(whole(gvkCatalogSource), func(o client.Object) []string {
			r.Packages.CatalogChanged(olm.Catalog{Namespace: o.GetNamespace(), Name: o.GetName()})
			return r.governed()
		}),
	}
}

// watch wakes the loop for what an object concerns. An update that changes nothing that is read here, such as
// a catalog that was polled, wakes nobody.
func (r *reconciler) watch(kind client.Object, concerns func(client.Object) []string) watched {
	add := func(q queue, o client.Object) {
		for _, namespace := range concerns(o) {
			if len(r.Store.Load().Namespace(namespace).Policies()) > 0 {
				q.Add(namespace)
			}
		}
	}
	return source.TypedKind(r.cache, kind, handler.TypedFuncs[client.Object, string]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[client.Object], q queue) { add(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[client.Object], q queue) {
			if !sameForUs(e.ObjectOld, e.ObjectNew) {
				add(q, e.ObjectNew)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], q queue) { add(q, e.Object) },
	})
}

// governed lists the namespaces with policies, "" for those that govern nothing yet.
func (r *reconciler) governed() []string { return r.Store.Load().Governed() }

// ownersOf lists the namespaces of the operators that a CustomResourceDefinition is marked as belonging to.
func (r *reconciler) ownersOf(o client.Object) []string {
	var owners []string
	for _, namespace := range r.governed() {
		for _, p := range r.Store.Load().Namespace(namespace).Policies() {
			if _, ok := o.GetLabels()[compliance.OperatorLabel(p.Package, namespace)]; ok {
				owners = append(owners, namespace)
			}
		}
	}
	return owners
}

// PackageChanged wakes the loop for the policies of a package.
func (l *Loop) PackageChanged(pkg string) {
	snapshot := l.options.Store.Load()
	if snapshot == nil {
		return
	}
	for _, namespace := range snapshot.Governed() {
		for _, p := range snapshot.Namespace(namespace).Policies() {
			if p.Package == pkg {
				l.options.Changes.Namespaces([]string{namespace})
				break
			}
		}
	}
}
