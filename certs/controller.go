package certs

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/internal/signal"
)

const (
	// resyncPeriod bounds timers, which do not advance while the machine sleeps. A resync sends no requests to the
	// API server.
	resyncPeriod = time.Minute
	// Writes are rate limited, in case another client writes the same fields in a loop.
	writesPerSecond, writesAtOnce = 5, 50
	firstRetry, maxRetry          = time.Second, 30 * time.Second
)

// Controller writes the Secret, the caBundles, the entries of the webhooks and their paths with the tokens. But for paths,
// only the replica that leads does. Unless Options disable it, the webhook configurations are
// owned by Opgate's namespace, so that they are deleted with it: without a server they would refuse writes forever.
type Controller struct {
	options Options
	source  Source
	// Only where certificates are self-managed, otherwise nil.
	secret    *object
	published published
	ca        *sharedCA
	// registrations are watched by every replica, since each has to accept the current tokens.
	registrations []*registration
	reading       sync.Mutex // orders updates of the tokens as they were read

	client  dynamic.Interface
	limiter flowcontrol.RateLimiter
	// queue is the leader's.
	queue manager.Queue[item]
	// routes triggers a reconciliation of paths. Its capacity is 1: changes are coalesced.
	routes chan struct{}

	// What follows is of the leader, which has one worker. owner is the UID of Opgate's namespace; "" until it was read.
	owner types.UID
	// refused are the objects whose owners may not be changed, reported those that were logged as skipped, waiting
	// those that were logged as without effect yet, by label.
	refused, reported, waiting map[string]bool
	// selectors are those that were logged as exempting namespaces, by label of the object.
	selectors map[string][]string
}

// item is the only item of the queue: everything is compared.
type item struct{}

// NewController returns a controller for certificates that Opgate does not manage itself. Start runs what every replica
// does, AddTo adds what the leader does to a manager.
func NewController(o Options, source Source) (*Controller, error) {
	o.Metrics.Serving(source)
	return newController(o, source)
}

func newController(o Options, source Source) (*Controller, error) {
	k := &Controller{options: o, source: source, routes: make(chan struct{}, 1),
		limiter: flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesAtOnce),
		refused: map[string]bool{}, reported: map[string]bool{}, waiting: map[string]bool{},
		selectors: map[string][]string{}}
	if o.Callers != nil {
		o.Callers.added = k.routes
	}
	var err error
	if k.client, err = dynamic.NewForConfig(o.Config); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	k.registrations = registrations(&o.Webhooks, o.ExternalDefinition)
	for _, r := range k.registrations {
		resource := r.kind.GroupVersion().WithResource(r.resource)
		if r.object, err = watchObject(k.client, resource, "", r.name, k.registrationChanged,
			k.options.Log); err != nil {
			return nil, fmt.Errorf("watch %s %s: %w", r.kind.Kind, r.name, err)
		}
	}
	return k, nil
}

// Start watches the registrations and keeps their paths until the context is cancelled.
func (k *Controller) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, r := range k.registrations {
		running.Go(func() { r.Informer.RunWithContext(ctx) })
	}
	running.Go(func() {
		select {
		case <-k.options.Ready: // never, if it is ready from the start
			k.enqueue()
		case <-ctx.Done():
		}
	})
	k.keepPaths(ctx)
	return nil
}

// AddTo adds the controller to the manager of the leader. It must be called before Start.
func (k *Controller) AddTo(mgr ctrl.Manager) error {
	_, err := k.queue.AddTo(mgr, "certs", controller.TypedOptions[item]{Reconciler: k,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[item](firstRetry, maxRetry)})
	k.enqueue()
	return err
}

// enqueue triggers a reconciliation of the leader.
func (k *Controller) enqueue() { k.queue.Add(item{}) }

// registrationChanged accepts the tokens of the current registrations and triggers a reconciliation.
func (k *Controller) registrationChanged() {
	defer k.enqueue()
	defer signal.Put(k.routes)
	if k.options.Callers != nil {
		k.reading.Lock()
		defer k.reading.Unlock()
		inUse := map[string]string{}
		for _, r := range k.registrations {
			if r.verb != "" {
				inUse[r.label] = r.token()
			}
		}
		k.options.Callers.update(inUse)
	}
}

// conflicted reports whether a write failed because of a concurrent write, which the watch will deliver.
func conflicted(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
