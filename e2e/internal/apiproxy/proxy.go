// Package apiproxy is a proxy between one client and the API server, which disturbs requests as broken networks and
// broken API servers do.
package apiproxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

// quiet is the log of the servers: what fails here is meant to.
var quiet = log.New(io.Discard, "", 0)

// All means all resources.
const All = "*"

// Fault is what a proxy does to requests. The zero value does nothing.
type Fault struct {
	// Delay is how long each request waits before it is forwarded.
	Delay time.Duration
	// Refuse makes the proxy close new connections.
	Refuse bool
	// RefuseWatches are the resources, such as "operatorpolicies", of which new watches are answered with 503.
	RefuseWatches []string
	// BlackHole keeps all connections open, and passes nothing in either direction.
	BlackHole bool
	// Stall are the resources of which watches deliver nothing, also those that begin meanwhile. Connections, pings and
	// lists work. What was held back is delivered later, unless the client has gone.
	Stall []string
}

// Proxy forwards requests to an API server, with TLS on both sides. Its methods may be called from several goroutines.
type Proxy struct {
	server  *http.Server
	address string
	ca      []byte
	serving sync.WaitGroup

	mu      sync.Mutex
	fault   Fault
	changed chan struct{} // closed when fault changes
	open    map[*conn]bool
}

// Start starts a proxy at an address, to the API server of a configuration. The caller must call Stop.
func Start(ctx context.Context, address string, to *rest.Config) (*Proxy, error) {
	target, err := url.Parse(to.Host)
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	certificate, key, err := certutil.GenerateSelfSignedCertKey(host, []net.IP{net.ParseIP(host)}, nil)
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	upstream, err := rest.TransportFor(&rest.Config{Host: to.Host,
		TLSClientConfig: rest.TLSClientConfig{CAData: to.CAData, CAFile: to.CAFile}})
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	p := &Proxy{address: listener.Addr().String(), ca: certificate, changed: make(chan struct{}),
		open: map[*conn]bool{}}
	p.server = &http.Server{
		Handler:           p.handler(target, upstream),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          quiet,
	}
	p.serving.Go(func() { _ = p.server.ServeTLS(&listening{Listener: listener, proxy: p}, "", "") }) // it ends by Stop
	return p, nil
}

// Stop closes all connections.
func (p *Proxy) Stop() error {
	p.Set(Fault{})
	err := p.server.Close()
	p.serving.Wait()
	return err
}

// Config returns the configuration of a client that sends its requests by way of the proxy. Its user must have a token,
// since a certificate authenticates to the proxy alone.
func (p *Proxy) Config(user *rest.Config) *rest.Config {
	config := rest.CopyConfig(user)
	config.Host = "https://" + p.address
	config.TLSClientConfig = rest.TLSClientConfig{CAData: p.ca}
	return config
}

// Set replaces the fault.
func (p *Proxy) Set(fault Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
	close(p.changed)
	p.changed = make(chan struct{})
}

// Reset resets all open connections.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		if connection, ok := c.Conn.(*net.TCPConn); ok {
			_ = connection.SetLinger(0) // so that the other side gets RST
		}
		_ = c.Conn.Close()
	}
}

// current returns the fault, and a channel that is closed when another one replaces it.
func (p *Proxy) current() (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.changed
}

// await waits while the fault holds something back, until done is closed.
func (p *Proxy) await(done <-chan struct{}, holds func(Fault) bool) error {
	for {
		fault, changed := p.current()
		if !holds(fault) {
			return nil
		}
		select {
		case <-changed:
		case <-done:
			return net.ErrClosed
		}
	}
}

// handler forwards requests.
func (p *Proxy) handler(target *url.URL, upstream http.RoundTripper) http.Handler {
	forward := &httputil.ReverseProxy{
		Transport:     upstream,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1, // events are delivered when they come
		ErrorLog:      quiet,
		// the stream is reset
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: func(r *http.Response) error {
			if resource, watched := watch(r.Request.URL); watched {
				r.Body = &events{ReadCloser: r.Body, proxy: p, resource: resource, done: r.Request.Context().Done()}
			}
			return nil
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fault, _ := p.current()
		if fault.Delay > 0 {
			timer := time.NewTimer(fault.Delay)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-r.Context().Done():
				return
			}
		}
		if resource, watched := watch(r.URL); watched && includes(fault.RefuseWatches, resource) {
			http.Error(w, "no watches now", http.StatusServiceUnavailable)
			return
		}
		forward.ServeHTTP(w, r)
	})
}

// watch returns the resource that a request watches, and whether it is a watch.
func watch(u *url.URL) (resource string, watched bool) {
	query := u.Query()
	if of := query.Get("watch"); of != "true" && of != "1" {
		return "", false
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	switch {
	case len(parts) > 1 && parts[0] == "api":
		parts = parts[2:] // the version
	case len(parts) > 2 && parts[0] == "apis":
		parts = parts[3:] // group and version
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return "", false
	}
	return parts[0], true
}

func includes(resources []string, resource string) bool {
	return slices.Contains(resources, All) || slices.Contains(resources, resource)
}

// events are those of a watch.
type events struct {
	io.ReadCloser
	proxy    *Proxy
	resource string
	done     <-chan struct{}
}

// Read returns nothing while the watch is stalled.
func (e *events) Read(into []byte) (int, error) {
	n, err := e.ReadCloser.Read(into)
	stalled := e.proxy.await(e.done, func(f Fault) bool { return includes(f.Stall, e.resource) })
	if stalled != nil {
		return 0, stalled
	}
	return n, err
}

// listening accepts connections, or closes them.
type listening struct {
	net.Listener
	proxy *Proxy
}

func (l *listening) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if fault, _ := l.proxy.current(); fault.Refuse {
			_ = accepted.Close()
			continue
		}
		c := &conn{Conn: accepted, proxy: l.proxy, done: make(chan struct{})}
		l.proxy.mu.Lock()
		l.proxy.open[c] = true
		l.proxy.mu.Unlock()
		return c, nil
	}
}

// conn is a connection of the client.
type conn struct {
	net.Conn
	proxy *Proxy
	once  sync.Once
	done  chan struct{}
}

func blackHole(f Fault) bool { return f.BlackHole }

func (c *conn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if dropped := c.proxy.await(c.done, blackHole); dropped != nil {
		return 0, dropped
	}
	return n, err
}

func (c *conn) Write(data []byte) (int, error) {
	if err := c.proxy.await(c.done, blackHole); err != nil {
		return 0, err
	}
	return c.Conn.Write(data)
}

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.done)
		c.proxy.mu.Lock()
		defer c.proxy.mu.Unlock()
		delete(c.proxy.open, c)
	})
	return c.Conn.Close()
}
