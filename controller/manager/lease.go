package manager

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/opgate/opgate/internal/kept"
	"github.com/opgate/opgate/internal/lease"
)

// LeaseName is the Lease that the leading replica holds.
const LeaseName = kept.LoopLease

// requestTimeout is half the time in which a leader has to renew, as that of controller-runtime's own locks.
const requestTimeout = renewDeadline / 2

// Lease is the lock of leader election, the last proof that a replica was running, and annotations that outlast
// replicas. It is safe for concurrent use.
type Lease struct {
	client    coordinationv1client.LeasesGetter
	namespace string
	acquired  func(annotations map[string]string)

	mu sync.Mutex
	// renewed is the last renewal in another term than the current one.
	renewed time.Time
	current *term
}

// NewLease returns the Lease in a namespace. Nothing is read or written.
func NewLease(config *rest.Config, namespace string) (*Lease, error) {
	config = rest.CopyConfig(config)
	config.Timeout = requestTimeout
	client, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for Leases: %w", err)
	}
	return &Lease{client: client, namespace: namespace, acquired: func(map[string]string) {}}, nil
}

// OnAcquired sets a function that is called with the annotations when this replica has acquired the Lease, before
// controllers start. It must be called before leader election starts.
func (l *Lease) OnAcquired(acquired func(annotations map[string]string)) { l.acquired = acquired }

// LastRenewal returns when a replica last renewed the Lease before the present leader acquired it; zero for never.
func (l *Lease) LastRenewal() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewed
}

// Annotate sets an annotation, or removes it if the value is "", while this replica leads. The leader renews the Lease
// at the same time; a write that fails with a conflict is repeated.
func (l *Lease) Annotate(ctx context.Context, annotation, value string) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := l.client.Leases(l.namespace).Get(ctx, LeaseName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := l.present().holds(lease); err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, annotation, value)
		if value == "" {
			delete(lease.Annotations, annotation)
		}
		_, err = l.client.Leases(l.namespace).Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("write annotation %s of Lease %s/%s: %w", annotation, l.namespace, LeaseName, err)
	}
	return nil
}

// term returns the lock of one manager, with an identity of its own. End is called when it is lost.
func (l *Lease) term(holder string, now func() time.Time, end context.CancelFunc) *term {
	l.mu.Lock()
	defer l.mu.Unlock()
	identity := holder + "_" + string(uuid.NewUUID())
	l.current = &term{lease: l, now: now, end: end, Interface: lease.New(l.client, l.namespace, LeaseName, identity)}
	return l.current
}

// present returns the last term; nil before the first.
func (l *Lease) present() *term {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

func (l *Lease) lastRenewed(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = at
}
