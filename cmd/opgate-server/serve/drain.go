package serve

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/opgate/opgate/internal/signal"
)

const (
	// openInterval is how often to look whether connections are still open when the process is to stop.
	openInterval = 100 * time.Millisecond
	// fenceTimeout bounds the dial of a fence. The kernel answers at once unless its queue is full.
	fenceTimeout = time.Second
)

// drain returns a context that ends once the process has to stop and the API server does not use it any more: no
// connection is open, and none was accepted for delay. Readiness fails from the start, but only the API server's
// connections show when it has observed that: as long as new ones arrive, it has not. A connection that is open may
// have a review on its way. All of that takes at most delay and timeout together.
func (s *webhookServer) drain(
	shutdownContext context.Context, delay, timeout time.Duration, log logr.Logger,
) context.Context {
	serving, stop := context.WithCancel(context.WithoutCancel(shutdownContext))
	context.AfterFunc(shutdownContext, func() {
		defer stop()
		log.Info("draining", "delay", delay.String(), "timeout", timeout.String())
		ctx, cancel := context.WithTimeout(serving, delay+timeout)
		defer cancel()
		if err := s.connections.end(ctx, delay); err != nil {
			log.Info("drain timed out, stopping", "open", s.connections.open.Load())
		}
	})
	return serving
}

// connections are those of a server.
type connections struct {
	listener *fenced
	open     atomic.Int64
	accepted atomic.Int64 // since the start
}

// count is a hook for http.Server, which calls it for a new connection before it accepts the next.
func (c *connections) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.open.Add(1)
		c.accepted.Add(1)
	case http.StateClosed, http.StateHijacked:
		c.open.Add(-1)
	default:
	}
}

// end waits until no connection is open and none was accepted for quiet. It returns an error if ctx ends before.
//
// Time alone proves nothing: a process without CPU time has connections in the kernel's queue that it has yet to
// accept. The fence at the end shows that there are none.
func (c *connections) end(ctx context.Context, quiet time.Duration) error {
	for {
		before := c.accepted.Load()
		if err := signal.Sleep(ctx, quiet); err != nil {
			return err
		}
		err := wait.PollUntilContextCancel(ctx, openInterval, true, func(ctx context.Context) (bool, error) {
			return c.open.Load() == 0 && c.listener.fence(ctx) == nil, nil
		})
		if err != nil {
			return err
		}
		if c.accepted.Load() == before {
			return nil
		}
	}
}

// fenced is a listener that shows when all connections that the kernel has for it are accepted.
type fenced struct {
	net.Listener
	// dial opens a connection to the listener.
	dial func(ctx context.Context) (net.Conn, error)

	mu     sync.Mutex
	own    string        // the address of the connection that is the fence, "" if there is none
	passed chan struct{} // closed when that is accepted
}

func newFenced(listener net.Listener) *fenced {
	return &fenced{Listener: listener, dial: func(ctx context.Context) (net.Conn, error) {
		dialer := net.Dialer{Timeout: fenceTimeout}
		// an unspecified address is the loopback interface here
		return dialer.DialContext(ctx, "tcp", listener.Addr().String())
	}}
}

// Accept returns the next connection that is not the fence.
func (f *fenced) Accept() (net.Conn, error) {
	for {
		connection, err := f.Listener.Accept()
		if err != nil || !f.isFence(connection) {
			return connection, err
		}
		_ = connection.Close()
	}
}

func (f *fenced) isFence(connection net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.own == "" || connection.RemoteAddr().String() != f.own {
		return false
	}
	f.own = ""
	close(f.passed)
	return true
}

// fence returns when every connection that was in the kernel's queue before is accepted: it is the last in that queue
// itself.
func (f *fenced) fence(ctx context.Context) error {
	f.mu.Lock() // so that it is known before it is accepted
	own, err := f.dial(ctx)
	if err != nil {
		f.mu.Unlock()
		return err
	}
	defer func() { _ = own.Close() }()
	passed := make(chan struct{})
	f.own, f.passed = own.LocalAddr().String(), passed
	f.mu.Unlock()
	select {
	case <-passed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
