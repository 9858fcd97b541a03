package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/opgate/opgate/certs"
	"github.com/opgate/opgate/internal/inflight"
)

const (
	// These bound the resources that a client can keep busy (threat G20). API servers close an idle connection after 90 seconds; the
	// server must not be first, since a review may be on its way then. Bodies of reviews have deadlines of their own, in
	// package inflight; readTimeout is for what is sent elsewhere, writeTimeout for answers that are not read.
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
)

// webhookServer answers reviews and conversions, and counts its connections.
type webhookServer struct {
	manager.Server
	mux         *http.ServeMux
	connections connections
}

// newWebhookServer listens; the manager makes it serve. Once shutdownContext is done, every answer ends its connection.
func newWebhookServer(shutdownContext context.Context, address string, source certs.Source, known *callers, log logr.Logger) (*webhookServer, error) {
	listener, err := (&net.ListenConfig{}).Listen(shutdownContext, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--webhook-bind-address: %w", err)
	}
	return serveOn(shutdownContext, newFenced(listener), source, known, log), nil
}

// serveOn is newWebhookServer for a listener that exists.
func serveOn(shutdownContext context.Context, listener *fenced, source certs.Source, known *callers, log logr.Logger) *webhookServer {
	s := &webhookServer{mux: http.NewServeMux(), connections: connections{listener: listener}}
	timeout := shutdownTimeout
	s.Server = manager.Server{
		Name: "webhooks",
		Listener: tls.NewListener(inflight.Listener(listener), known.listen(&tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: source.GetCertificate,
			// The API server speaks HTTP/1.1 to webhooks on purpose; without h2 its attack surface is gone.
			NextProtos: []string{"http/1.1"},
		})),
		ShutdownTimeout: &timeout,
		Server: &http.Server{
			Handler:   s.answer(shutdownContext),
			ConnState: s.connections.count,
			// For the first request of a connection this runs from the handshake on. API servers keep connections
			// that they have dialed and not used yet with those that are idle, so it must not be less than that:
			// else the server closes first, and the first review on such a connection is lost. ReadTimeout would do the same:
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

func (s *webhookServer) answer(shutdownContext context.Context) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if shutdownContext.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		// Before the next request the server replaces this deadline by that of an idle connection.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout))
		s.mux.ServeHTTP(w, r)
	}
}

// logWriter receives the messages of net/http, such as that a client does not trust our certificate.
type logWriter struct{ log logr.Logger }

func (w logWriter) Write(line []byte) (int, error) {
	w.log.Info("a connection failed", "error", string(line[:max(0, len(line)-1)]))
	return len(line), nil
}

// untilShutdown ends what writes to the cluster when the process receives SIGTERM, so that another replica takes over at
// once. All else continues while connections drain.
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

// NeedLeaderElection is false: the runnables inside elect their own leaders.
func (u untilShutdown) NeedLeaderElection() bool { return false }
