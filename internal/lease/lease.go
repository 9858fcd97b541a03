// Package lease elects the replica that does something, by a Lease that only its holder releases.
package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ErrLost is returned by Election.Lead when the Lease was lost.
var ErrLost = errors.New("the Lease was lost")

// Election is one for a Lease. All fields are required.
type Election struct {
	Lock resourcelock.Interface
	// Duration is how long other replicas wait after the last renewal that they have seen, RenewDeadline how long the
	// holder retries a renewal, and RetryPeriod the interval of renewals and retries.
	Duration, RenewDeadline, RetryPeriod time.Duration
}

// Lead waits for the Lease and does the work while it is held. The Lease is released after the work has returned, which
// has to be soon after its context ends. It returns the error of the work, ErrLost if there is none and the Lease was
// lost meanwhile, and nil if the context ended or the work did.
func (e Election) Lead(ctx context.Context, work func(context.Context) error) (err error) {
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var once sync.Once
	turn := func(work func(context.Context) error) {
		once.Do(func() {
			if err = work(working); err == nil && errors.Is(context.Cause(working), ErrLost) {
				err = ErrLost
			}
		})
		release()
	}
	skip := func() { turn(func(context.Context) error { return nil }) } // waits where the work has begun
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.Lock, LeaseDuration: e.Duration, RenewDeadline: e.RenewDeadline, RetryPeriod: e.RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { turn(work) },
			OnStoppedLeading: func() { end(ErrLost) },
		},
	})
	if err != nil {
		return fmt.Errorf("make the leader elector: %w", err)
	}
	defer context.AfterFunc(ctx, skip)()
	elector.Run(electing)
	skip()
	return err
}

// lock is a Lease. An elector of client-go releases it by what it last observed itself, so that a process that was
// stopped for longer than the Lease lasts would release the one of its follower.
type lock struct {
	resourcelock.LeaseLock
	// holder is who held the Lease when it was last read, which an elector does before it releases it.
	holder string
}

// New returns the Lease of a name as the lock of one elector, which is known by its identity. Nothing is read or
// written.
func New(client coordinationv1client.LeasesGetter, namespace, name, identity string) resourcelock.Interface {
	return &lock{LeaseLock: resourcelock.LeaseLock{Client: client,
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity}}}
}

// Get reads the Lease.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.LeaseLock.Get(ctx)
	if err == nil {
		l.holder = record.HolderIdentity
	}
	return record, raw, err
}

// Update acquires, renews or releases the Lease in the state that was last read: the API server refuses it if the Lease
// was written since. It returns an error if the elector would release the Lease of another one.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != l.Identity() && l.holder != l.Identity() {
		return fmt.Errorf("not released, %q holds the Lease", l.holder)
	}
	return l.LeaseLock.Update(ctx, record)
}
