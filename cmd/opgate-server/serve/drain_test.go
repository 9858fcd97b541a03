package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/opgate/opgate/certs"
	"github.com/opgate/opgate/internal/memnet"
)

const (
	// idleInAPIServer is how long API servers keep a connection that they do not use.
	idleInAPIServer = 90 * time.Second
	// drainDelay and drainTimeout are the defaults of the options.
	drainDelay, drainTimeout = 5 * time.Second, 100 * time.Second
	review                   = "a review"
)

// draining is a webhook server that echoes bodies, and how to stop it.
type draining struct {
	*webhookServer
	network *memnet.Listener
	roots   *x509.CertPool
	serving context.Context // the server's own
	stop    context.CancelFunc
	stopped chan error
}

// newDraining returns one. It does not serve before start is called.
func newDraining(t *testing.T) *draining {
	t.Helper()
	source, bundle, err := certs.SelfSigned("localhost")
	if err != nil {
		t.Fatal(err)
	}
	d := &draining{network: memnet.Listen(), roots: x509.NewCertPool(), stopped: make(chan error, 1)}
	d.roots.AppendCertsFromPEM(bundle)
	shutdownContext, stop := context.WithCancel(t.Context())
	d.stop = stop
	d.webhookServer = serveOn(shutdownContext, &fenced{Listener: d.network, dial: d.dial},
		(&Options{}).tls(source), &callers{}, logr.Discard())
	d.Register("/review", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	d.serving = d.drain(shutdownContext, drainDelay, drainTimeout, logr.Discard())
	return d
}

func (d *draining) dial(ctx context.Context) (net.Conn, error) { return d.network.Dial(ctx, "client") }

func (d *draining) start() {
	go func() { d.stopped <- d.Start(d.serving) }()
}

// waitStopped wants the server to end, and returns how long that took.
func (d *draining) waitStopped(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	select {
	case err := <-d.stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Hour):
		t.Fatal("the server does not end")
	}
	return time.Since(began)
}

// connect opens a connection as an API server does.
func (d *draining) connect(t *testing.T) *tls.Conn {
	t.Helper()
	connection, err := d.dial(t.Context())
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return tls.Client(connection, &tls.Config{RootCAs: d.roots, ServerName: "localhost", MinVersion: tls.VersionTLS12})
}

// ask sends a review and wants an answer. It reports whether the connection can be used again.
func ask(t *testing.T, connection *tls.Conn) (open bool) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://localhost/review",
		strings.NewReader(review))
	if err != nil {
		t.Fatal(err)
	}
	if err := request.Write(connection); err != nil {
		t.Fatalf("the review was lost: %v", err)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), request)
	if err != nil {
		t.Fatalf("the review was lost: %v", err)
	}
	defer func() { _ = response.Body.Close() }()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != review {
		t.Errorf("the answer is %q, %v", body, err)
	}
	if response.Close {
		_, _ = io.Copy(io.Discard, connection) // until the server has closed it
	}
	return !response.Close
}

// TestG23ConnectionsAreTheClientsToClose uses connections shortly before an API server would close them. A server that
// closes one first may do so while a review is on its way, and an API server does not send a review twice.
func TestG23ConnectionsAreTheClientsToClose(t *testing.T) {
	for name, uses := range map[string]int{"never used": 0, "used before": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDraining(t)
				d.start()
				connection := d.connect(t)
				if err := connection.HandshakeContext(t.Context()); err != nil {
					t.Fatal(err)
				}
				for range uses {
					ask(t, connection)
				}
				time.Sleep(idleInAPIServer - time.Millisecond)
				if !ask(t, connection) {
					t.Error("the server closes the connection, though it is not to stop")
				}
				_ = connection.Close()
				d.stop()
				d.waitStopped(t)
			})
		})
	}
}

// TestG23StoppingWithoutCPU leaves a review in the kernel's queue while the process gets no CPU time to accept it:
// longer than any delay, and without a connection that shows it.
func TestG23StoppingWithoutCPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDraining(t)
		d.stop()
		time.Sleep(drainDelay - time.Millisecond)
		connection := d.connect(t)
		time.Sleep(drainDelay * 2)
		if d.serving.Err() != nil {
			t.Fatal("the server stops while a review waits to be accepted")
		}
		d.start()
		if ask(t, connection) {
			t.Error("the connection stays open, though the server is to stop")
		}
		_ = connection.Close()
		d.waitStopped(t)
	})
}

// TestG23APIServerLearnsLate sends reviews by new connections long after the delay, as an API server does that is slow
// to observe other endpoints. None may be lost, and once they end the server does.
func TestG23APIServerLearnsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDraining(t)
		d.start()
		d.stop()
		for range 20 {
			connection := d.connect(t)
			if ask(t, connection) {
				t.Error("the connection stays open, though the server is to stop")
			}
			_ = connection.Close()
			time.Sleep(drainDelay / 2)
		}
		if took := d.waitStopped(t); took > 2*drainDelay {
			t.Errorf("the server took %s to end after the last review, want %s at most", took, 2*drainDelay)
		}
	})
}

// TestG23StoppingIdle expects an idle server to end after the delay.
func TestG23StoppingIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDraining(t)
		d.start()
		d.stop()
		if took := d.waitStopped(t); took > drainDelay+openInterval {
			t.Errorf("the server took %s to end, want %s", took, drainDelay)
		}
	})
}

// TestG23StoppingIsBounded expects a server to end although a client never closes its connection.
func TestG23StoppingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDraining(t)
		d.start()
		connection := d.connect(t)
		ask(t, connection)
		d.stop()
		if took := d.waitStopped(t); took < drainTimeout || took > drainDelay+drainTimeout+shutdownTimeout {
			t.Errorf("the server took %s to end", took)
		}
	})
}
