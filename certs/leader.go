package certs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	// leaseName is the Lease that the leading replica holds. The background loop has one of its own.
	leaseName     = "opgate-certs"
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 3 * time.Second

	// longestPause is how long to rely on a timer: a machine that slept has slept through it. Looking again
	// asks the API server nothing.
	longestPause = time.Minute
	// Writes are bounded in case somebody else keeps writing the same fields.
	writesPerSecond, writesAtOnce = 5, 50
	firstRetry, longestRetry      = time.Second, 30 * time.Second
)

// Keeper lets one replica write the Secret and the caBundles where certificates are self-managed. Where they are
// not, every replica sees to the rest: the ownership of the webhook configurations, which have to go with the
// namespace that Opgate lives in: without a server they would refuse writes for ever.
type Keeper struct {
	options Options
	source  Source
	secret  *object   // nil unless certificates are self-managed
	ca      *sharedCA // as well
	// registrations are followed by every replica, since each has to know the paths that the API server calls.
	registrations []*registration
	reading       sync.Mutex // so that what is learned last is what was read last

	client  dynamic.Interface
	leases  coordinationclient.LeasesGetter
	clock   *serverClock
	limiter flowcontrol.RateLimiter
	changed chan struct{} // holds one token
}

// NewKeeper makes a keeper for certificates that something else manages. Start runs it.
func NewKeeper(o Options, source Source) (*Keeper, error) {
	o.Metrics.Serving(source)
	return newKeeper(o, source)
}

func newKeeper(o Options, source Source) (*Keeper, error) {
	k := &Keeper{options: o, source: source, clock: &serverClock{now: o.Now}, changed: make(chan struct{}, 1),
		limiter: flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesAtOnce)}
	config := k.clock.measure(o.Config)
	var err error
	if k.client, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if k.leases, err = coordinationclient.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	k.registrations = registrations()
	for _, r := range k.registrations {
		if r.object, err = follow(k.client, r.kind.GroupVersion().WithResource(r.resource), "", r.name, k.seen, k.options.Log); err != nil {
			return nil, fmt.Errorf("watch %s %s: %w", r.kind.Kind, r.name, err)
		}
	}
	return k, nil
}

// Start takes part in the choice of a leader until the context ends.
func (k *Keeper) Start(ctx context.Context) error {
	k.run(ctx)
	return nil
}

// NeedLeaderElection is false: the keeper sees to that itself, and losing it does not end the process.
func (k *Keeper) NeedLeaderElection() bool { return false }

func (k *Keeper) wake() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// seen takes over what the API server calls by after a change of a registration.
func (k *Keeper) seen() {
	defer k.wake()
	if k.options.Callers != nil {
		k.reading.Lock()
		defer k.reading.Unlock()
		inUse := map[string]string{}
		for _, r := range k.registrations {
			if r.verb != "" {
				inUse[r.label] = r.token()
			}
		}
		k.options.Callers.learn(inUse)
	}
}

func (k *Keeper) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, r := range k.registrations {
		running.Go(func() { r.informer.RunWithContext(ctx) })
	}
	turn := k.campaign
	if k.secret == nil {
		turn = k.lead // it does not matter how many say who owns what
	}
	for ctx.Err() == nil {
		if err := turn(ctx); err != nil && ctx.Err() == nil {
			k.options.Log.Error(err, "the upkeep of certificates ended here, another replica may go on", "again", leaseDuration.String())
			pause(ctx, leaseDuration)
		}
	}
}

// pause waits, and looks at nothing but the context.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// campaign waits for the Lease and leads until it is lost or the context ends.
func (k *Keeper) campaign(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var leading sync.Mutex
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: leaseName,
		Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: k.options.Namespace, Name: leaseName}, Client: k.leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: k.options.Identity}},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				leading.Lock()
				defer leading.Unlock()
				if err := k.lead(ctx); err != nil {
					cancel(err)
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("take part in the choice of a leader: %w", err)
	}
	elector.Run(ctx)
	leading.Lock() // what has begun must end before it begins again
	defer leading.Unlock()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// fit tells why this replica had better not lead: certificates that it makes by a wrong clock are of no use.
func (k *Keeper) fit() error {
	if k.secret == nil {
		return nil
	}
	return k.clock.check()
}

// lead follows what there is to keep, and keeps it.
func (k *Keeper) lead(ctx context.Context) error {
	if err := k.fit(); err != nil || ctx.Err() != nil {
		return err
	}
	t := &term{Keeper: k, refused: map[string]bool{}, told: map[string]bool{}}
	defer k.options.Metrics.stopped()
	var synced []cache.InformerSynced
	for _, r := range t.registrations {
		synced = append(synced, r.synced)
	}
	if k.secret != nil {
		synced = append(synced, k.secret.synced)
	}
	k.options.Log.Info("leading the upkeep of certificates")
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	retry := wait.Backoff{Duration: firstRetry, Factor: 2, Cap: longestRetry, Steps: 10}
	failed := retry
	for ctx.Err() == nil {
		if err := k.fit(); err != nil {
			return err
		}
		next, err := t.keep(ctx)
		delay := longestPause
		switch {
		case err != nil && ctx.Err() == nil:
			delay = failed.Step()
			k.options.Log.Error(err, "the upkeep of certificates failed, it is tried again", "after", delay.String())
		case !next.IsZero():
			failed, delay = retry, min(delay, max(next.Sub(k.options.Now()), 0))
		default:
			failed = retry
		}
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
		case <-k.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// conflicted tells whether a write failed since somebody else wrote. The watch tells what.
func conflicted(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
