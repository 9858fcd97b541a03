package speed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// Wait bounds the wait for a condition that an idle machine meets within seconds. It may be large: a test that
	// passes does not wait for its deadline.
	Wait = 3 * time.Minute
	// LongWait is Wait for what takes up to a minute there, such as an installation by OLM.
	LongWait = 10 * time.Minute
)

const (
	// tick is how often the machine is measured while something waits.
	tick = 5 * time.Second
	// tickPart is the part of the work that is measured then: 18 ms, 0.4 % of a processor.
	tickPart = 8
)

// machine measures this machine.
var machine = &meter{measure: func() float64 { return bounded(sample(1, tickPart).elapsed) }}

// WithTimeout returns a context that ends when d has passed in machine time: time by the clock, divided by how many
// times slower than usual the machine is meanwhile. Time in which this process is stopped does not count, and what else
// keeps the machine busy makes the wait longer. The context may end some seconds later than d. Its cause then is
// context.DeadlineExceeded, with both durations. The caller must call cancel.
func WithTimeout(parent context.Context, d time.Duration) (ctx context.Context, cancel context.CancelFunc) {
	return machine.withTimeout(parent, d)
}

// After returns a channel that is closed when d has passed in machine time.
func After(d time.Duration) <-chan struct{} {
	ctx, _ := WithTimeout(context.Background(), d) //nolint:forbidigo // it ends by itself
	return ctx.Done()
}

// Poll checks a condition, at once and then at every interval, until it is true or returns an error, or timeout has
// passed in machine time.
func Poll(ctx context.Context, interval, timeout time.Duration, condition wait.ConditionWithContextFunc) error {
	return PollDelayed(ctx, wait.Backoff{Duration: interval}.DelayFunc(), timeout, condition)
}

// PollDelayed is Poll with delays that differ.
func PollDelayed(
	ctx context.Context, delay wait.DelayFunc, timeout time.Duration, condition wait.ConditionWithContextFunc,
) error {
	ctx, cancel := WithTimeout(ctx, timeout)
	defer cancel()
	err := delay.Until(ctx, true, true, condition)
	if ctx.Err() != nil && wait.Interrupted(err) {
		return context.Cause(ctx)
	}
	return err
}

// meter measures the machine while something waits.
type meter struct {
	measure func() float64 // how many times slower than usual the machine is now, at least 1

	mu   sync.Mutex
	at   time.Time // of the last measurement
	last float64
}

// slowness is what was measured last, which is at most a tick old: everything that waits shares it.
func (m *meter) slowness() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.at) >= tick { //nolint:forbidigo // no test depends on it
		m.at, m.last = now, m.measure()
	}
	return m.last
}

func (m *meter) withTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	began := time.Now() //nolint:forbidigo // for the error
	go func() {
		// A step counts as what it was to last: this process may have been stopped meanwhile.
		step := min(d, tick)
		for left := d; left > 0; left -= time.Duration(float64(step) / m.slowness()) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(step):
			}
		}
		cancel(fmt.Errorf("%w: %s on a machine of usual speed, which were %s here", context.DeadlineExceeded, d,
			time.Since(began).Round(time.Second))) //nolint:forbidigo // as above
	}()
	return ctx, func() { cancel(nil) }
}
