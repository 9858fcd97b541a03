package escape

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
)

// annotation is the annotation of the Lease with the records.
const annotation = "opgate.io/escapes"

// requestTimeout is that of controller-runtime's own locks: half the time in which a leader has to renew.
const requestTimeout = 5 * time.Second

// Lease is the Lease of the background loop: the lock of leader election, the last proof that a replica was
// running, and the records. It is safe for concurrent use.
type Lease struct {
	client          coordinationv1client.LeasesGetter
	namespace, name string
	log             logr.Logger
	records         Records

	mu sync.Mutex
	// renewed is the last renewal by another lock than the present one.
	renewed time.Time
}

// NewLease returns a Lease. Nothing is read or written.
func NewLease(config *rest.Config, namespace, name string, log logr.Logger) (*Lease, error) {
	config = rest.CopyConfig(config)
	config.Timeout = requestTimeout
	client, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for Leases: %w", err)
	}
	return &Lease{client: client, namespace: namespace, name: name, log: log}, nil
}

// Lock returns a lock with an identity of its own, for one manager.
func (l *Lease) Lock(holder string) resourcelock.Interface {
	return &lock{lease: l, Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: l.name}, Client: l.client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: holder + "_" + string(uuid.NewUUID())},
	}}
}

// lock records when others have renewed the Lease: after it is acquired, the Lease itself does not contain that time any more.
type lock struct {
	resourcelock.Interface
	lease  *Lease
	loaded bool
}

// Get reads the Lease.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != l.Identity() {
		l.lease.mu.Lock()
		defer l.lease.mu.Unlock()
		l.lease.renewed = record.RenewTime.Time
	}
	return record, raw, err
}

// Update acquires or renews the Lease. The records are read before the new leader starts, so that no status is written without them.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := l.Interface.Update(ctx, record); err != nil {
		return err
	}
	if l.loaded || record.HolderIdentity != l.Identity() {
		return nil
	}
	if err := l.lease.load(ctx); err != nil {
		return err // leader election retries
	}
	l.loaded = true
	return nil
}

// lastRenewal returns when a replica last renewed the Lease before the present leader acquired it; zero for never.
func (l *Lease) lastRenewal() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewed
}

// load reads the records.
func (l *Lease) load(ctx context.Context) error {
	lease, err := l.client.Leases(l.namespace).Get(ctx, l.name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read Lease %s/%s: %w", l.namespace, l.name, err)
	}
	var records []record
	if text := lease.Annotations[annotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &records); err != nil {
			l.log.Error(err, "records of escapes cannot be read, starting without", "lease", l.name, "annotation", annotation)
			records = nil
		}
	}
	l.records.replace(records)
	return nil
}

// save writes the records. The leader renews the Lease at the same time; a write that fails with a conflict is repeated.
func (l *Lease) save(ctx context.Context, records []record) error {
	text, err := json.Marshal(records)
	if err != nil {
		return err
	}
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := l.client.Leases(l.namespace).Get(ctx, l.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Annotations == nil {
			lease.Annotations = map[string]string{}
		}
		lease.Annotations[annotation] = string(text)
		if len(records) == 0 {
			delete(lease.Annotations, annotation)
		}
		_, err = l.client.Leases(l.namespace).Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("write annotation %s of Lease %s/%s: %w", annotation, l.namespace, l.name, err)
	}
	return nil
}
