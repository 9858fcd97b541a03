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

	"github.com/opgate/opgate/admission/webhooks"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/signal"
)

// serviceName is the Service that the API server calls.
const serviceName = "opgate-webhook"

// Options configure the controller of certificates.
type Options struct {
	// Config is the client configuration. Required.
	Config *rest.Config
	// Namespace is Opgate's namespace: of the Secret, the ConfigMap and the Service. Required.
	Namespace string
	// Lifetimes of self-managed certificates. All are required for these.
	Lifetimes Lifetimes
	// Webhooks are the entries of the webhook configurations. Required.
	Webhooks webhooks.Configurations
	// Callers accepts the tokens in the registrations. Default: the API server authenticates by certificate, and paths
	// have no token.
	Callers *Callers
	// Ready is closed when this replica has been ready. Until then it does not write the entries of webhooks, which makes
	// them take effect. Default: it is ready from the start.
	Ready <-chan struct{}
	// Unowned removes the namespace from the owners of the webhook configurations, and does not add it. Default: it is
	// an owner.
	Unowned bool
	// ExternalDefinition leaves the definition of OperatorPolicy alone, which another program owns. Default: its
	// conversion is served.
	ExternalDefinition bool
	// Metrics of certificates and registrations. Required.
	Metrics *Metrics
	// Events records that fields of webhooks were set back, on their configurations. Default: nothing is recorded.
	Events *events.Recorder
	// Log receives state changes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

// Managed signs serving certificates with a CA that the replicas share in a Secret. Each replica keeps its certificate
// in memory and uses the last valid CA, even if the Secret is deleted or damaged.
type Managed struct {
	options    Options
	ca         *sharedCA
	leaves     *servertls.DynamicSource
	controller *Controller
	secret     *object
	reads      sync.Mutex
	unread     string // resourceVersion of the last unusable Secret
}

// NewManaged returns a source, and the controller that keeps the CA.
func NewManaged(o Options) (*Managed, *Controller, error) {
	m := &Managed{options: o, ca: newSharedCA(o.Now, o.Lifetimes.Leaf)}
	m.leaves = &servertls.DynamicSource{DNSNames: dnsNames(o.Namespace), Authority: m.ca}
	var err error
	if m.controller, err = newController(o, m); err != nil {
		return nil, nil, err
	}
	m.secret, err = watchObject(m.controller.client, secretsResource, o.Namespace, secretName, m.read, o.Log)
	if err != nil {
		return nil, nil, fmt.Errorf("watch the Secret of the CA: %w", err)
	}
	configMap, err := watchObject(m.controller.client, configMapsResource, o.Namespace, secretName,
		m.controller.enqueue, o.Log)
	if err != nil {
		return nil, nil, fmt.Errorf("watch the ConfigMap of the CA: %w", err)
	}
	m.controller.secret, m.controller.published, m.controller.ca = m.secret, published{configMap}, m.ca
	o.Metrics.Serving(m)
	o.Metrics.expiration("ca", func() time.Time {
		if s := m.ca.current.Load(); s != nil {
			return s.signer.cert.NotAfter
		}
		return time.Time{}
	})
	return m, m.controller, nil
}

// dnsNames returns the names under which the API server may call us.
func dnsNames(namespace string) []string {
	name := serviceName + "." + namespace
	return []string{name + ".svc", name + ".svc.cluster.local", name}
}

// GetCertificate returns the current serving certificate.
func (m *Managed) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return m.leaves.GetCertificate(hello)
}

// Healthy reports whether there is a valid serving certificate.
func (m *Managed) Healthy() bool { return m.options.Now().Before(expiry(m)) }

// Start watches the Secret and renews the serving certificate until the context is cancelled.
func (m *Managed) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { m.secret.Informer.RunWithContext(ctx) })
	running.Go(func() { m.controller.published.Informer.RunWithContext(ctx) })
	select {
	case <-ctx.Done():
		return nil
	case <-m.ca.first:
	}
	// It logs each step at V(0), which is V(1) here.
	err := m.leaves.Start(logr.NewContext(ctx, m.options.Log.V(1)))
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("keep a serving certificate: %w", err)
	}
	return nil
}

// read uses the CA of the Secret if it is valid.
func (m *Managed) read() {
	m.reads.Lock()
	defer m.reads.Unlock()
	defer m.controller.enqueue()
	secret, err := m.secret.secret()
	if err != nil {
		m.options.Log.Error(err, "CA Secret unusable, keeping the CA in memory", "secret", secretName)
		return
	}
	var problems []string
	switch s := decode(secret); {
	case s.signs(m.options.Now()):
		if m.ca.use(s) {
			m.options.Log.Info("using CA from Secret", "ca", fingerprint(s.signer.cert),
				"until", s.signer.cert.NotAfter.Format(time.RFC3339))
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
		m.options.Log.Info("CA Secret has problems, keeping the CA in memory", "secret", secretName,
			"problems", problems)
	}
	m.unread = version
}

// sharedCA is the CA that this replica signs with. It implements cert-manager's Authority.
type sharedCA struct {
	now      func() time.Time
	lifetime time.Duration
	current  atomic.Pointer[state] // the last that could sign when it was read
	first    chan struct{}         // closed when current is first set

	mu       sync.Mutex
	watchers []chan<- struct{}
}

var _ servertls.Authority = (*sharedCA)(nil)

func newSharedCA(now func() time.Time, lifetime time.Duration) *sharedCA {
	return &sharedCA{now: now, lifetime: lifetime, first: make(chan struct{})}
}

// use signs with a state from now on and reports whether its CA is another one.
func (c *sharedCA) use(s *state) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.current.Swap(s)
	if last == nil {
		close(c.first)
	} else if last.signer.same(s.signer) {
		return false
	}
	for _, watcher := range c.watchers {
		signal.Put(watcher)
	}
	return true
}

// Run blocks until the context is cancelled: the CA comes from the Secret.
func (c *sharedCA) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// WatchRotation notifies a channel when another CA signs.
func (c *sharedCA) WatchRotation(watcher chan<- struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers = append(c.watchers, watcher)
}

// StopWatchingRotation undoes WatchRotation.
func (c *sharedCA) StopWatchingRotation(watcher chan<- struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers = slices.DeleteFunc(c.watchers, func(w chan<- struct{}) bool { return w == watcher })
}

// Sign returns a serving certificate.
func (c *sharedCA) Sign(template *x509.Certificate) (*x509.Certificate, error) {
	current := c.current.Load()
	if current == nil {
		return nil, cmauthority.ErrCertificateNotAvailable
	}
	return current.signer.sign(template, c.now(), c.lifetime)
}
