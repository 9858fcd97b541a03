package inflight

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// share is how much an address may acquire for each unit that it leaves free. One address alone gets two thirds of a pool;
// each further one gets two thirds of what is left, so a few addresses cannot take everything from the rest.
const share = 2

// ErrBusy means that a request could not acquire its share of the budget in time.
var ErrBusy = errors.New("too many requests are being read or answered")

// pool is a weighted semaphore in which addresses share. golang.org/x/sync/semaphore serves strictly in turn, so one large
// request that waits would block all small ones behind it, and it does not account by address.
//
// It is safe for concurrent use.
type pool struct {
	capacity int64

	mu       sync.Mutex
	free     int64
	reserved map[string]int64 // by address; no zeros
	waiting  []*waiter        // in order of arrival
}

type waiter struct {
	address string
	n       int64
	granted chan struct{}
}

func newPool(capacity int64) *pool {
	return &pool{capacity: capacity, free: capacity, reserved: map[string]int64{}}
}

// largest returns the most that one request can acquire from an unused pool.
func (p *pool) largest() int64 { return p.capacity * share / (share + 1) }

// fits reports whether an address can acquire n more. The caller must hold mu.
func (p *pool) fits(address string, n int64) bool { return p.reserved[address]+n <= share*(p.free-n) }

func (p *pool) take(address string, n int64) {
	p.free -= n
	p.reserved[address] += n
}

// try acquires n units if they are available now.
func (p *pool) try(address string, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.fits(address, n) {
		return false
	}
	p.take(address, n)
	return true
}

// acquire acquires n units and blocks until they are available. It returns ErrBusy after the timeout or when the context is
// cancelled. Small requests pass a large one that waits.
func (p *pool) acquire(ctx context.Context, address string, n int64, timeout time.Duration) error {
	if n > p.largest() {
		return ErrBusy
	}
	p.mu.Lock()
	if p.fits(address, n) {
		p.take(address, n)
		p.mu.Unlock()
		return nil
	}
	w := &waiter{address: address, n: n, granted: make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-w.granted:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, w)
	if i < 0 {
		return nil // granted at the same time
	}
	p.waiting = slices.Delete(p.waiting, i, i+1)
	return ErrBusy
}

// release releases n units.
func (p *pool) release(address string, n int64) {
	if n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += n
	if p.reserved[address] -= n; p.reserved[address] == 0 {
		delete(p.reserved, address)
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool {
		if !p.fits(w.address, w.n) {
			return false
		}
		p.take(w.address, w.n)
		close(w.granted)
		return true
	})
}

// used returns how much is acquired.
func (p *pool) used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.capacity - p.free
}
