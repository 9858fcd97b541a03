// Package certs provides the serving certificate of the webhook server and makes the API server trust it. The interface
// Source has three implementations: files that cert-manager or another tool writes and renews; a CA that the replicas
// share in a Secret and rotate themselves; and a self-signed certificate in memory, for local use.
//
// Rotation of the shared CA is decided in rotation.go, without a client or a clock. The replica that leads writes
// (controller.go). All state is in the Secret, so that any replica can take over.
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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/opgate/opgate/admission/webhooks"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/internal/watched"
)

// Source provides the serving certificate. Start keeps it current until the context is cancelled; Healthy reports
// whether there is a valid one.
type Source = servertls.CertificateSource

// Files returns a source that reads a PEM certificate and key from files, again whenever they change.
func Files(certFile, keyFile string, now func() time.Time) (Source, error) {
	watcher, err := certwatcher.New(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the serving certificate: %w", err)
	}
	return files{watcher, now}, nil
}

type files struct {
	*certwatcher.CertWatcher
	now func() time.Time
}

func (f files) Healthy() bool { return f.now().Before(expiry(f)) }

// SelfSigned returns a source with a certificate for a host, valid for a year, whose key never leaves the process, and
// the CA that clients must trust, PEM-encoded. It is for local use: each start makes another certificate, whose CA the
// webhook configurations must then contain.
func SelfSigned(host string) (source Source, bundle []byte, err error) {
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("make a self-signed certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, nil, fmt.Errorf("load the self-signed certificate: %w", err)
	}
	return inMemory{&pair}, certPEM, nil
}

type inMemory struct{ pair *tls.Certificate }

func (m inMemory) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) { return m.pair, nil }
func (m inMemory) Healthy() bool                                                 { return true }
func (m inMemory) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// leaf returns the certificate that a source serves, nil while there is none, and the chain below it.
func leaf(source Source) (cert *x509.Certificate, chain [][]byte) {
	pair, err := source.GetCertificate(nil)
	if err != nil || pair == nil || len(pair.Certificate) == 0 {
		return nil, nil
	}
	cert, _ = x509.ParseCertificate(pair.Certificate[0]) // nil with an error
	return cert, pair.Certificate[1:]
}

// expiry returns when the serving certificate of a source expires; zero while there is none.
func expiry(source Source) time.Time {
	if cert, _ := leaf(source); cert != nil {
		return cert.NotAfter
	}
	return time.Time{}
}

// trusts reports whether a client with a bundle of PEM certificates accepts the certificate of a source. Without a
// bundle the API server trusts the roots of its system; those of this one are taken for the same.
func trusts(bundle []byte, source Source, now time.Time) bool {
	cert, chain := leaf(source)
	if cert == nil {
		return false
	}
	options := x509.VerifyOptions{Intermediates: x509.NewCertPool(), CurrentTime: now}
	if len(bundle) > 0 {
		if options.Roots = x509.NewCertPool(); !options.Roots.AppendCertsFromPEM(bundle) {
			return false
		}
	}
	for _, der := range chain {
		if c, err := x509.ParseCertificate(der); err == nil {
			options.Intermediates.AddCert(c)
		}
	}
	_, err := cert.Verify(options)
	return err == nil
}

// serviceName is the Service that the API server calls.
const serviceName = "opgate-webhook"

// Options configure the controller of certificates.
type Options struct {
	// Client sends requests to the API server, not too many: another client may write the same fields in a loop. Required.
	Client dynamic.Interface
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
	// them take effect. Required.
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
	*servertls.DynamicSource
	options    Options
	ca         *sharedCA
	controller *Controller
}

// NewManaged returns a source, and the controller that keeps the CA.
func NewManaged(o Options) (*Managed, *Controller) {
	m := &Managed{options: o, ca: &sharedCA{now: o.Now, lifetime: o.Lifetimes.Leaf,
		first: make(chan struct{})}}
	m.DynamicSource = &servertls.DynamicSource{DNSNames: dnsNames(o.Namespace), Authority: m.ca}
	m.controller = NewController(o, m)
	k := m.controller
	k.secret = watched.New(o.Client, secretsResource, o.Namespace, secretName, m.read, o.Log)
	k.published = watched.New(o.Client, configMaps, o.Namespace, secretName, func(any) { k.enqueue() }, o.Log)
	k.ca, k.synced = m.ca, append(k.synced, k.secret.Synced, k.published.Synced)
	o.Metrics.expiration("ca", func() time.Time {
		if s := m.ca.current.Load(); s != nil {
			return s.signer.cert.NotAfter
		}
		return time.Time{}
	})
	return m, k
}

// dnsNames returns the names under which the API server may call us.
func dnsNames(namespace string) []string {
	name := serviceName + "." + namespace
	return []string{name + ".svc", name + ".svc.cluster.local", name}
}

// Healthy reports whether there is a valid serving certificate.
func (m *Managed) Healthy() bool { return m.options.Now().Before(expiry(m)) }

// Start watches the Secret and renews the serving certificate until the context is cancelled.
func (m *Managed) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { m.controller.secret.Informer.RunWithContext(ctx) })
	running.Go(func() { m.controller.published.Informer.RunWithContext(ctx) })
	select {
	case <-ctx.Done():
		return nil
	case <-m.ca.first:
	}
	// It logs each step at V(0), which is V(1) here.
	err := m.DynamicSource.Start(logr.NewContext(ctx, m.options.Log.V(1)))
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("keep a serving certificate: %w", err)
	}
	return nil
}

// read uses the CA of the Secret if it is valid.
func (m *Managed) read(any) {
	defer m.controller.enqueue()
	secret, err := secretOf(m.controller.secret)
	if err != nil {
		m.options.Log.Error(err, "CA Secret unusable, keeping the CA in memory", "secret", secretName)
		return
	}
	s := decode(secret)
	if !s.signs(m.options.Now()) {
		m.options.Log.Info("CA Secret has no CA that signs, keeping the CA in memory", "secret", secretName,
			"problems", problemsOf(s))
		return
	}
	if m.ca.use(s) {
		m.options.Log.Info("using CA from Secret", "ca", fingerprint(s.signer.cert),
			"until", s.signer.cert.NotAfter.Format(time.RFC3339))
	}
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
