package inflight

import (
	"net"
	"sync"
)

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
