package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	// leaseDuration is how long other replicas wait after the last renewal that they have seen. It is most of the time
	// until another replica leads after one was killed.
	leaseDuration = 8 * time.Second
	// renewDeadline is how long a leader retries a renewal before it stops.
	renewDeadline = 5 * time.Second
	// retryPeriod is the interval of renewals, and the shortest one at which other replicas read the Lease.
	retryPeriod = 2 * time.Second
	// validity is how long after a renewal the leader may write: as long as leader election retries. Another replica
	// acquires the Lease a second later at the soonest.
	validity = retryPeriod + renewDeadline
)

// term is one term of leadership: the lock of its leader election, and whether this replica may still write. It ends
// when the Lease names another holder, and when this process was stopped for longer than the Lease lasts.
type term struct {
	resourcelock.Interface
	lease *Lease
	now   func() time.Time
	// end stops the controllers.
	end context.CancelFunc

	mu sync.Mutex
	// confirmed is when the last request was sent by which the API server has renewed the Lease; zero before it is
	// acquired.
	confirmed time.Time
	// over is why the term has ended; nil before.
	over error
}

// elapsed returns the time between two readings of the clock, the wall clock or the monotonic one, whichever advanced
// further: the latter stops while the machine is suspended.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// state returns when the Lease was last confirmed, and why the term has ended.
func (t *term) state() (confirmed time.Time, over error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.confirmed, t.over
}

// valid returns nil if this replica may write: it holds the Lease, and has renewed it recently enough that no other
// replica can have acquired it. A process that was stopped finds out here, before its timers do.
func (t *term) valid() error {
	confirmed, over := t.state()
	switch age := elapsed(confirmed, t.now()); {
	case over != nil:
		return over
	case confirmed.IsZero():
		return errors.New("the Lease is not acquired")
	case age > validity:
		return fmt.Errorf("the Lease was last renewed %s ago", age.Round(time.Millisecond))
	}
	return nil
}

// holds returns nil if this replica may write to the Lease in the state that was read.
func (t *term) holds(lease *coordinationv1.Lease) error {
	if holder := lease.Spec.HolderIdentity; holder == nil || *holder != t.Identity() {
		return errors.New("another replica leads")
	}
	return t.valid()
}

// finish ends the term. The first cause counts.
func (t *term) finish(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over == nil {
		t.over = cause
		t.end()
	}
}

// Get reads the Lease. After the Lease is acquired, it does not contain any more when others have renewed it, so that
// is recorded here.
func (t *term) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := t.Interface.Get(ctx)
	if err != nil || record.HolderIdentity == t.Identity() {
		return record, raw, err
	}
	if confirmed, _ := t.state(); !confirmed.IsZero() {
		t.finish(fmt.Errorf("the Lease names another holder: %q", record.HolderIdentity))
	} else {
		t.lease.lastRenewed(record.RenewTime.Time)
	}
	return record, raw, err
}

// Create acquires a Lease that does not exist, without annotations, or renews one that was deleted.
func (t *term) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.send(ctx, record, t.Interface.Create)
}

// Update acquires, renews or releases the Lease.
func (t *term) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == t.Identity() {
		return t.send(ctx, record, t.Interface.Update)
	}
	t.finish(errors.New("the Lease is released")) // before another replica can acquire it
	return t.Interface.Update(ctx, record)
}

// send acquires or renews the Lease. The annotations are read before controllers start, so that none works without
// them.
func (t *term) send(ctx context.Context, record resourcelock.LeaderElectionRecord,
	write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	confirmed, _ := t.state()
	sent := t.now()
	if !confirmed.IsZero() && elapsed(confirmed, sent) > leaseDuration {
		t.finish(errors.New("this process was stopped, or the clock set, for longer than the Lease lasts"))
	}
	if _, over := t.state(); over != nil {
		return over
	}
	if err := write(ctx, record); err != nil {
		return err
	}
	if confirmed.IsZero() {
		lease, err := t.lease.client.Leases(t.lease.namespace).Get(ctx, LeaseName, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read Lease %s/%s: %w", t.lease.namespace, LeaseName, err) // leader election retries
		}
		t.lease.acquired(lease.Annotations)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.confirmed = sent
	return nil
}

// fence returns a transport that sends no writes while the term is not valid. All clients of controllers have it, so
// that no controller has to check.
func (t *term) fence(next http.RoundTripper) http.RoundTripper { return fence{next, t} }

type fence struct {
	next http.RoundTripper
	term *term
}

// RoundTrip sends a request.
func (f fence) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return f.next.RoundTrip(req)
	}
	if err := f.term.valid(); err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, fmt.Errorf("not sent, this replica does not lead: %w", err)
	}
	return f.next.RoundTrip(req)
}
