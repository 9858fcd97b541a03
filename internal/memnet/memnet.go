// Package memnet is a network in memory, for tests in synthetic time: that advances only where every goroutine waits,
// and one that reads a socket does not count as waiting.
package memnet

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// Listener is a net.Listener. Like a kernel, it queues connections until they are accepted.
type Listener struct {
	queue  chan net.Conn
	closed chan struct{}
	close  func()
	dialed atomic.Int64
}

// Listen returns a Listener.
func Listen() *Listener {
	closed := make(chan struct{})
	return &Listener{queue: make(chan net.Conn, 100), closed: closed, close: sync.OnceFunc(func() { close(closed) })}
}

// conn is one end of a connection, with addresses by which connections differ.
type conn struct {
	net.Conn
	local, remote address
}

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

func (c conn) LocalAddr() net.Addr  { return c.local }
func (c conn) RemoteAddr() net.Addr { return c.remote }

// Dial opens a connection from a host to the listener.
func (l *Listener) Dial(_ context.Context, host string) (net.Conn, error) {
	server, client := address("server:443"), address(fmt.Sprintf("%s:%d", host, l.dialed.Add(1)))
	dialed, accepted := net.Pipe()
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	case l.queue <- conn{accepted, server, client}:
		return conn{dialed, client, server}, nil
	}
}

// Accept returns the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	case connection := <-l.queue:
		return connection, nil
	}
}

// Close drops what was not accepted, as a kernel does.
func (l *Listener) Close() error {
	l.close()
	for {
		select {
		case connection := <-l.queue:
			_ = connection.Close()
		default:
			return nil
		}
	}
}

// Addr is the address of the listener.
func (l *Listener) Addr() net.Addr { return address("server:443") }
