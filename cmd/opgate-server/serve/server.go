package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/opgate/opgate/certs"
	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/internal/signal"
)

const (
	// These bound the resources that a client can keep busy. API servers close an idle connection after 90
	// seconds; the server must not be first, since a review may be on its way then. Bodies of reviews have deadlines of
	// their own, in package inflight; readTimeout is for what is sent elsewhere, writeTimeout for answers that are not
	// read.
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
)

// webhookServer is the webhook server of the manager: it answers reviews and conversions, and counts its connections.
// The server of the library that it embeds registers handlers with its metrics, and is not started: it shows neither
// listener nor connections.
type webhookServer struct {
	webhook.Server
	http        manager.Server
	connections connections
}

// newWebhookServer listens; Start serves. Once shutdownContext is done, every answer ends its connection.
func newWebhookServer(
	shutdownContext context.Context, o *Options, source certs.Source, known *callers, log logr.Logger,
) (*webhookServer, error) {
	listener, err := (&net.ListenConfig{}).Listen(shutdownContext, "tcp", o.WebhookAddress)
	if err != nil {
		return nil, fmt.Errorf("--webhook-bind-address: %w", err)
	}
	return serveOn(shutdownContext, newFenced(listener), o.tls(source), known, log), nil
}

// serveOn is newWebhookServer for a listener that exists.
func serveOn(
	shutdownContext context.Context, listener *fenced, config *tls.Config, known *callers, log logr.Logger,
) *webhookServer {
	mux := http.NewServeMux()
	s := &webhookServer{
		Server:      webhook.NewServer(webhook.Options{WebhookMux: mux}),
		connections: connections{listener: listener},
	}
	s.http = manager.Server{
		Name:            "webhooks",
		Listener:        tls.NewListener(inflight.Listener(listener), known.listen(config)),
		ShutdownTimeout: new(shutdownTimeout),
		Server: &http.Server{
			Handler:   answer(shutdownContext, mux),
			ConnState: s.connections.count,
			// For the first request of a connection this runs from the handshake on. API servers keep connections that
			// they have dialed and not used yet with those that are idle, so it must not be less than that: else the
			// server closes first, and the first review on such a connection is lost. ReadTimeout would do the same:
			// answer sets a deadline for each body instead.
			ReadHeaderTimeout: idleTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			// such as that a client does not trust our certificate
			ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(log.WithName("webhooks")), slog.LevelInfo),
		},
	}
	return s
}

// Start serves until the context ends.
func (s *webhookServer) Start(ctx context.Context) error { return s.http.Start(ctx) }

// StartedChecker returns a check that always passes: the listener exists before the server does.
func (s *webhookServer) StartedChecker() healthz.Checker { return healthz.Ping }

// Register serves a handler at a path, and at the path with a token. The metrics
// controller_runtime_webhook_latency_seconds, _requests_total and _requests_in_flight count both under the path.
func (s *webhookServer) Register(path string, handler http.Handler) {
	s.Server.Register(path, handler)
	mux := s.WebhookMux()
	measured, _ := mux.Handler(&http.Request{Method: http.MethodPost, URL: &url.URL{Path: path}})
	mux.Handle(path+"/{token}", measured)
}

func answer(shutdownContext context.Context, mux http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if shutdownContext.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		// Before the next request the server replaces this deadline by that of an idle connection.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout))
		mux.ServeHTTP(w, r)
	}
}

// untilShutdown ends what writes to the cluster when the process receives SIGTERM, so that another replica takes over
// at once. All else continues while connections drain.
type untilShutdown struct {
	manager.Runnable
	shutdownContext context.Context
}

func (u untilShutdown) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(u.shutdownContext, cancel)()
	return u.Runnable.Start(ctx)
}

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

// tlsVersions are those that can be the lowest one.
var tlsVersions = map[string]uint16{"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}

// cipherSuites returns the suites that Go has no security objections to, by their names.
func cipherSuites() map[string]uint16 {
	suites := map[string]uint16{}
	for _, suite := range tls.CipherSuites() {
		suites[suite.Name] = suite.ID
	}
	return suites
}

// tlsProfile returns what the cluster's TLS profile asks for, as the chart passes it on from ConfigMap ocm-tls-profile.
// What Opgate never serves is left out: versions below 1.2, and cipher suites that Go has security objections to.
func tlsProfile() (version string, suites []string) {
	if version = os.Getenv("OPGATE_TLS_MIN_VERSION"); tlsVersions[version] == 0 {
		version = "VersionTLS12"
	}
	for name := range strings.SplitSeq(os.Getenv("OPGATE_TLS_CIPHER_SUITES"), ",") {
		if name = strings.TrimSpace(name); cipherSuites()[name] != 0 {
			suites = append(suites, name)
		}
	}
	return version, suites
}

// tls returns how HTTPS is served.
func (o *Options) tls(source certs.Source) *tls.Config {
	config := &tls.Config{
		MinVersion:     tlsVersions[o.TLSMinVersion],
		GetCertificate: source.GetCertificate,
		// The API server speaks HTTP/1.1 to webhooks on purpose; without h2 its attack surface is gone.
		NextProtos: []string{"http/1.1"},
	}
	for _, name := range o.TLSCipherSuites {
		config.CipherSuites = append(config.CipherSuites, cipherSuites()[name])
	}
	return config
}
