package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	servertls "github.com/cert-manager/cert-manager/pkg/server/tls"
	cmauthority "github.com/cert-manager/cert-manager/pkg/server/tls/authority"
	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
)

// serviceName is the Service that the API server calls.
const serviceName = "opgate-webhook"

// Options configure what is done with the API server.
type Options struct {
	// Config is how to reach it. Required.
	Config *rest.Config
	// Namespace is where Opgate lives: of the Secret, the Lease and the Service. Required.
	Namespace string
	// Identity names this replica to the others. Required, and no two may be the same.
	Identity string
	// Lifetimes are of self-managed certificates. All are required for these.
	Lifetimes Lifetimes
	// Callers learns what the API server calls by. Default: it authenticates by certificate, and its paths need no token.
	Callers *Callers
	// Metrics show what is found. Required.
	Metrics *Metrics
	// Log takes state changes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

// Managed signs serving certificates with a CA that the replicas share in a Secret. Each keeps its own in memory
// and goes on with the last CA that it could use, whatever becomes of the Secret.
type Managed struct {
	options Options
	ca      *sharedCA
	leaves  *servertls.DynamicSource
	keeper  *Keeper
	secret  *object
	reads   sync.Mutex
	unread  string // resourceVersion of the last Secret that could not be used
}

// NewManaged makes a source. Start runs it.
func NewManaged(o Options) (*Managed, error) {
	m := &Managed{options: o, ca: newSharedCA(o.Now, o.Lifetimes.Leaf)}
	m.leaves = &servertls.DynamicSource{DNSNames: dnsNames(o.Namespace), Authority: m.ca}
	var err error
	if m.keeper, err = newKeeper(o, m); err != nil {
		return nil, err
	}
	m.secret, err = follow(m.keeper.client, secretsResource, o.Namespace, secretName, m.read, o.Log)
	if err != nil {
		return nil, fmt.Errorf("watch the Secret of the CA: %w", err)
	}
	m.keeper.secret, m.keeper.ca = m.secret, m.ca
	o.Metrics.Serving(m)
	o.Metrics.expiration("ca", func() time.Time {
		if s := m.ca.current.Load(); s != nil {
			return s.signer.cert.NotAfter
		}
		return time.Time{}
	})
	return m, nil
}

// dnsNames are what the API server may call us by.
func dnsNames(namespace string) []string {
	name := serviceName + "." + namespace
	return []string{name + ".svc", name + ".svc.cluster.local", name}
}

// GetCertificate gives the present serving certificate.
func (m *Managed) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return m.leaves.GetCertificate(hello)
}

// Healthy tells whether there is a serving certificate that is valid.
func (m *Managed) Healthy() bool { return m.options.Now().Before(expiry(m)) }

// Start follows the Secret, keeps a serving certificate, and takes part in the choice of a leader.
func (m *Managed) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { m.secret.informer.RunWithContext(ctx) })
	running.Go(func() { m.keeper.run(ctx) })
	select {
	case <-ctx.Done():
		return nil
	case <-m.ca.first:
	}
	// It logs each step at what it takes for V(0).
	err := m.leaves.Start(logr.NewContext(ctx, m.options.Log.V(1)))
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("keep a serving certificate: %w", err)
	}
	return nil
}

// read takes the CA from the Secret if it can be used.
func (m *Managed) read() {
	m.reads.Lock()
	defer m.reads.Unlock()
	defer m.keeper.wake()
	secret, err := m.secret.secret()
	if err != nil {
		m.options.Log.Error(err, "the Secret of the CA cannot be used, the CA in memory stays", "secret", secretName)
		return
	}
	var problems []string
	switch s := decode(secret); {
	case s.signs(m.options.Now()):
		if m.ca.take(s) {
			m.options.Log.Info("took the CA from the Secret", "ca", fingerprint(s.signer.cert), "until", s.signer.cert.NotAfter.Format(time.RFC3339))
		}
		problems = s.problems
	case s == nil:
		problems = []string{"it is not there"}
	case len(s.problems) > 0:
		problems = s.problems
	case s.next == nil:
		problems = []string{"it has no CA that can sign now"}
	}
	if len(problems) == 0 {
		m.unread = ""
		return
	}
	version := "none"
	if secret != nil {
		version = secret.ResourceVersion
	}
	if m.unread != version {
		m.options.Log.Info("the Secret of the CA has problems, the CA in memory stays", "secret", secretName, "problems", problems)
	}
	m.unread = version
}

// sharedCA is the CA that this replica signs with: cert-manager's Authority.
type sharedCA struct {
	now      func() time.Time
	lifetime time.Duration
	current  atomic.Pointer[state] // the last that could sign when it was seen
	first    chan struct{}         // closed when there is one

	mu       sync.Mutex
	watchers []chan<- struct{}
}

var _ servertls.Authority = (*sharedCA)(nil)

func newSharedCA(now func() time.Time, lifetime time.Duration) *sharedCA {
	return &sharedCA{now: now, lifetime: lifetime, first: make(chan struct{})}
}

// take signs with a state from now on and tells whether that is another CA.
func (c *sharedCA) take(s *state) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.current.Swap(s)
	if last == nil {
		close(c.first)
	} else if last.signer.same(s.signer) {
		return false
	}
	for _, watcher := range c.watchers {
		select {
		case watcher <- struct{}{}:
		default: // it has not got to the last one yet
		}
	}
	return true
}

// Run waits for the end: the CA comes from the Secret.
func (c *sharedCA) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// WatchRotation has a channel told when another CA signs.
func (c *sharedCA) WatchRotation(watcher chan<- struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers = append(c.watchers, watcher)
}

// StopWatchingRotation ends that.
func (c *sharedCA) StopWatchingRotation(watcher chan<- struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers = slices.DeleteFunc(c.watchers, func(w chan<- struct{}) bool { return w == watcher })
}

// Sign makes a serving certificate.
func (c *sharedCA) Sign(template *x509.Certificate) (*x509.Certificate, error) {
	current := c.current.Load()
	if current == nil {
		return nil, cmauthority.ErrCertificateNotAvailable
	}
	return current.signer.sign(template, c.now(), c.lifetime)
}
