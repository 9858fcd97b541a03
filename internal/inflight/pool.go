package inflight

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
)

const (
	// share is how much an address, or a namespace, may acquire for each unit that it leaves free. One alone gets two
	// thirds of a pool; each further one gets two thirds of what is left, so a few cannot take everything from the
	// rest.
	share = 2
	// serverShare is share for an API server, whose reviews share by namespace as well. A client that has learned a
	// token counts as one: it leaves a ninth, whatever namespaces it writes into its reviews.
	serverShare = 8
)

// ErrBusy means that a request could not acquire its share of the budget in time.
var ErrBusy = errors.New("too many requests are being read or answered")

// holder is what a reservation counts for: a client, by its address, and for an API server also the namespace of the
// object.
type holder struct {
	address string
	server  bool
	// namespace is empty for other clients, and until the first part of the body was read.
	namespace string
}

func (h holder) client() holder      { return holder{address: h.address, server: h.server} }
func (h holder) ofNamespace() holder { return holder{namespace: h.namespace} }

// pool is a weighted semaphore in which holders share. golang.org/x/sync/semaphore serves strictly in turn, so one
// large request that waits would block all small ones behind it, and it does not account by holder.
//
// It is safe for concurrent use.
type pool struct {
	capacity int64

	mu       sync.Mutex
	free     int64
	reserved map[holder]int64 // by client and by namespace; no zeros
	waiting  []*waiter        // in order of arrival
}

type waiter struct {
	holder  holder
	n       int64
	granted chan struct{}
}

func newPool(capacity int64) *pool {
	return &pool{capacity: capacity, free: capacity, reserved: map[holder]int64{}}
}

// largest returns the most that one request can acquire from an unused pool.
func (p *pool) largest() int64 { return p.capacity * share / (share + 1) }

// fits reports whether a holder can acquire n more. The caller must hold mu.
func (p *pool) fits(h holder, n int64) bool {
	part := int64(share)
	if h.server {
		part = serverShare
	}
	free := p.free - n
	return p.reserved[h.client()]+n <= part*free && (h.namespace == "" || p.reserved[h.ofNamespace()]+n <= share*free)
}

// take acquires n units, or releases -n. The caller must hold mu.
func (p *pool) take(h holder, n int64) {
	p.free -= n
	p.count(h.client(), n)
	if h.namespace != "" {
		p.count(h.ofNamespace(), n)
	}
}

func (p *pool) count(key holder, n int64) {
	if p.reserved[key] += n; p.reserved[key] == 0 {
		delete(p.reserved, key)
	}
}

// try acquires n units if they are available now.
func (p *pool) try(h holder, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.fits(h, n) {
		return false
	}
	p.take(h, n)
	return true
}

// join makes n units that a client has acquired count for its namespace as well, and reports whether that may have
// them.
func (p *pool) join(h holder, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reserved[h.ofNamespace()]+n > share*p.free {
		return false
	}
	p.count(h.ofNamespace(), n)
	return true
}

// acquire acquires n units and blocks until they are available. It returns ErrBusy when the context ends, and for a
// client that is no API server after waitTimeout. Small requests pass a large one that waits.
func (p *pool) acquire(ctx context.Context, h holder, n int64) error {
	if n > p.largest() {
		return ErrBusy
	}
	p.mu.Lock()
	if p.fits(h, n) {
		p.take(h, n)
		p.mu.Unlock()
		return nil
	}
	w := &waiter{holder: h, n: n, granted: make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()

	if !h.server {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, waitTimeout)
		defer cancel()
	}
	select {
	case <-w.granted:
		return nil
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
func (p *pool) release(h holder, n int64) {
	if n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take(h, -n)
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool {
		if !p.fits(w.holder, w.n) {
			return false
		}
		p.take(w.holder, w.n)
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

// MaxConnections bounds the connections of one listener. Each takes some tens of kilobytes for TLS, buffers and
// goroutines. One address gets two thirds of them, which is more than the requests that an API server has in flight by
// default.
const MaxConnections = 1024

// Listener closes connections at once that are too many, or too many from one address.
func Listener(inner net.Listener) net.Listener { return &listener{inner, newPool(MaxConnections)} }

type listener struct {
	net.Listener
	open *pool
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := holder{address: hostOf(c.RemoteAddr().String())}
		if l.open.try(from, 1) {
			return &conn{Conn: c, release: sync.OnceFunc(func() { l.open.release(from, 1) })}, nil
		}
		_ = c.Close() // the client sees it, and we have no use for it
	}
}

type conn struct {
	net.Conn
	release func()
}

func (c *conn) Close() error {
	c.release()
	return c.Conn.Close()
}
