package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/opgate/opgate/certs"
)

const (
	// readHeaderTimeout and idleTimeout bound what a client can hold on to. API servers let go of an idle
	// connection after 90 seconds; it is they who must, since a review may be on its way when we do.
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	// openInterval is how often to look whether connections are still open when the process is to stop.
	openInterval = 100 * time.Millisecond
)

// webhookServer answers reviews and conversions, and knows how many connections there are.
type webhookServer struct {
	manager.Server
	mux  *http.ServeMux
	open atomic.Int64
}

// newWebhookServer listens; the manager has it serve. Once told is done, every answer ends its connection.
func newWebhookServer(told context.Context, address string, source certs.Source, log logr.Logger) (*webhookServer, error) {
	listener, err := (&net.ListenConfig{}).Listen(told, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--webhook-bind-address: %w", err)
	}
	s := &webhookServer{mux: http.NewServeMux()}
	timeout := shutdownTimeout
	s.Server = manager.Server{
		Name: "webhooks",
		Listener: tls.NewListener(listener, &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: source.GetCertificate,
			// The API server speaks HTTP/1.1 to webhooks on purpose; without h2 its attack surface is gone.
			NextProtos: []string{"http/1.1"},
		}),
		ShutdownTimeout: &timeout,
		Server: &http.Server{
			Handler:           s.answer(told),
			ConnState:         s.count,
			ReadHeaderTimeout: readHeaderTimeout,
			IdleTimeout:       idleTimeout,
			ErrorLog:          stdlog.New(logWriter{log.WithName("webhooks")}, "", 0),
		},
	}
	return s, nil
}

func (s *webhookServer) answer(told context.Context) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if told.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		s.mux.ServeHTTP(w, r)
	}
}

func (s *webhookServer) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.open.Add(-1)
	default:
	}
}

// drain gives a context that ends once the process was told to stop and nobody counts on it any more (threat
// G23). For a delay readiness fails and every review is still answered, since the API server has yet to learn
// that there are others to ask. Then it waits until the API server has let go of its connections, for it may have
// put a review on any of them that is still open.
func (s *webhookServer) drain(told context.Context, delay, timeout time.Duration, log logr.Logger) context.Context {
	serving, stop := context.WithCancel(context.WithoutCancel(told))
	context.AfterFunc(told, func() {
		defer stop()
		log.Info("draining", "delay", delay.String(), "timeout", timeout.String())
		delayed, cancel := context.WithTimeout(serving, delay)
		<-delayed.Done()
		cancel()
		err := wait.PollUntilContextTimeout(serving, openInterval, timeout, true, func(context.Context) (bool, error) { return s.open.Load() <= 0, nil })
		if err != nil {
			log.Info("some connections were not let go of", "open", s.open.Load())
		}
	})
	return serving
}

// logWriter takes what net/http has to say, such as that a client does not trust our certificate.
type logWriter struct{ log logr.Logger }

func (w logWriter) Write(line []byte) (int, error) {
	w.log.Info("a connection failed", "error", string(line[:max(0, len(line)-1)]))
	return len(line), nil
}

// untilTold ends what writes to the cluster when the process is told to stop, so that another replica goes on at
// once. All else goes on while connections drain.
type untilTold struct {
	manager.Runnable
	told context.Context
}

func (u untilTold) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(u.told, cancel)()
	return u.Runnable.Start(ctx)
}

// NeedLeaderElection is false: what writes sees to that itself.
func (u untilTold) NeedLeaderElection() bool { return false }
