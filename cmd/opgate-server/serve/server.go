package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/opgate/opgate/certs"
	"github.com/opgate/opgate/internal/inflight"
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
	shutdownContext context.Context, address string, source certs.Source, known *callers, log logr.Logger,
) (*webhookServer, error) {
	listener, err := (&net.ListenConfig{}).Listen(shutdownContext, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--webhook-bind-address: %w", err)
	}
	return serveOn(shutdownContext, newFenced(listener), source, known, log), nil
}

// serveOn is newWebhookServer for a listener that exists.
func serveOn(
	shutdownContext context.Context, listener *fenced, source certs.Source, known *callers, log logr.Logger,
) *webhookServer {
	mux := http.NewServeMux()
	s := &webhookServer{
		Server:      webhook.NewServer(webhook.Options{WebhookMux: mux}),
		connections: connections{listener: listener},
	}
	timeout := shutdownTimeout
	s.http = manager.Server{
		Name: "webhooks",
		Listener: tls.NewListener(inflight.Listener(listener), known.listen(&tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: source.GetCertificate,
			// The API server speaks HTTP/1.1 to webhooks on purpose; without h2 its attack surface is gone.
			NextProtos: []string{"http/1.1"},
		})),
		ShutdownTimeout: &timeout,
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
			ErrorLog:          stdlog.New(logWriter{log.WithName("webhooks")}, "", 0),
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

// logWriter receives the messages of net/http, such as that a client does not trust our certificate.
type logWriter struct{ log logr.Logger }

func (w logWriter) Write(line []byte) (int, error) {
	w.log.Info("a connection failed", "error", string(line[:max(0, len(line)-1)]))
	return len(line), nil
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
