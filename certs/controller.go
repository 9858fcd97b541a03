package certs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/opgate/opgate/internal/kept"
	"github.com/opgate/opgate/internal/lease"
	"github.com/opgate/opgate/internal/signal"
)

const (
	// leaseName is the Lease that the leading replica holds. The background loop has one of its own.
	leaseName     = kept.CertificatesLease
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 3 * time.Second

	// resyncPeriod bounds timers, which do not advance while the machine sleeps. A resync sends no requests to the
	// API server.
	resyncPeriod = time.Minute
	// Writes are rate limited, in case another client writes the same fields in a loop.
	writesPerSecond, writesAtOnce = 5, 50
	firstRetry, maxRetry          = time.Second, 30 * time.Second
)

// Controller writes the Secret, the caBundles, the entries of the webhooks and their paths with the tokens. But for paths,
// only the replica that holds the Lease does. Unless Options disable it, the webhook configurations are
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
	leases  coordinationclient.LeasesGetter
	limiter flowcontrol.RateLimiter
	// changed and routes trigger a reconciliation of the leader, and of paths. Their capacity is 1: changes are coalesced.
	changed, routes chan struct{}
}

// NewController returns a controller for certificates that Opgate does not manage itself. Start runs it.
func NewController(o Options, source Source) (*Controller, error) {
	o.Metrics.Serving(source)
	return newController(o, source)
}

func newController(o Options, source Source) (*Controller, error) {
	k := &Controller{options: o, source: source, changed: make(chan struct{}, 1), routes: make(chan struct{}, 1),
		limiter: flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesAtOnce)}
	if o.Callers != nil {
		o.Callers.added = k.routes
	}
	var err error
	if k.client, err = dynamic.NewForConfig(o.Config); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if k.leases, err = coordinationclient.NewForConfig(o.Config); err != nil {
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

// Start runs the controller until the context is cancelled.
func (k *Controller) Start(ctx context.Context) error {
	k.run(ctx)
	return nil
}

// enqueue triggers a reconciliation.
func (k *Controller) enqueue() { signal.Put(k.changed) }

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

func (k *Controller) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, r := range k.registrations {
		running.Go(func() { r.Informer.RunWithContext(ctx) })
	}
	running.Go(func() { k.keepPaths(ctx) })
	for ctx.Err() == nil {
		if err := k.runWithLease(ctx); err != nil && ctx.Err() == nil {
			k.options.Log.Error(err, "certificate controller stopped, retrying", "after", leaseDuration.String())
			_ = signal.Sleep(ctx, leaseDuration)
		}
	}
}

// runWithLease acquires the Lease and leads until the Lease is lost or the context is cancelled.
func (k *Controller) runWithLease(ctx context.Context) error {
	election := lease.Election{Lock: lease.New(k.leases, k.options.Namespace, leaseName, k.options.Identity),
		Duration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod}
	if err := election.Lead(ctx, k.lead); !errors.Is(err, lease.ErrLost) {
		return err
	}
	return nil
}

// lead reconciles on every change until the context is cancelled.
func (k *Controller) lead(ctx context.Context) error {
	l := &leadership{Controller: k, refused: map[string]bool{}, reported: map[string]bool{}, waiting: map[string]bool{},
		selectors: map[string][]string{}}
	defer k.options.Metrics.stopped()
	var synced []cache.InformerSynced
	for _, r := range l.registrations {
		synced = append(synced, r.Synced)
	}
	if k.secret != nil {
		synced = append(synced, k.secret.Synced, k.published.Synced)
	}
	k.options.Log.Info("leading certificate controller")
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	retry := wait.Backoff{Duration: firstRetry, Factor: 2, Cap: maxRetry, Steps: 10}
	failed := retry
	ready := k.options.Ready
	for ctx.Err() == nil {
		next, err := l.reconcile(ctx)
		delay := resyncPeriod
		switch {
		case err != nil && ctx.Err() == nil:
			delay = failed.Step()
			k.options.Log.Error(err, "certificate reconciliation failed, retrying", "after", delay.String())
		case !next.IsZero():
			failed, delay = retry, min(delay, max(next.Sub(k.options.Now()), 0))
		default:
			failed = retry
		}
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
		case <-k.changed:
		case <-ready:
			ready = nil // it stays closed
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// conflicted reports whether a write failed because of a concurrent write, which the watch will deliver.
func conflicted(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
