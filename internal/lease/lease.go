// Package lease has the lock of leader elections: a Lease that only its holder releases.
package lease

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock is a Lease. An elector of client-go releases it by what it last observed itself, so that a process that was
// stopped for longer than the Lease lasts would release the one of its follower.
type lock struct {
	resourcelock.LeaseLock
	// holder is who held the Lease when it was last read or written.
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

// Create acquires a Lease that does not exist.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.LeaseLock.Create(ctx, record)
	if err == nil {
		l.holder = record.HolderIdentity
	}
	return err
}

// Update acquires, renews or releases the Lease in the state that was last read: the API server refuses it if the Lease
// was written since. It returns an error if the elector would release the Lease of another one.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != l.Identity() && l.holder != l.Identity() {
		return fmt.Errorf("not released, %q holds the Lease", l.holder)
	}
	err := l.LeaseLock.Update(ctx, record)
	if err == nil {
		l.holder = record.HolderIdentity
	}
	return err
}
