// Package certs provides the serving certificate of the webhook server and makes the API server trust it. The interface
// Source has three implementations: files that cert-manager or another tool writes and renews; a CA that the replicas
// share in a Secret and rotate themselves; and a self-signed certificate in memory, for local use.
//
// Rotation of the shared CA is decided in rotation.go, without a client or a clock. The replica that leads
// writes (controller.go, reconcile.go). All state is in the Secret, so that any replica can take over.
package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	servertls "github.com/cert-manager/cert-manager/pkg/server/tls"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
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

// leaf returns the chain that a source serves, the serving certificate first; nil while there is none.
func leaf(source Source) []*x509.Certificate {
	pair, err := source.GetCertificate(nil)
	if err != nil || pair == nil {
		return nil
	}
	var chain []*x509.Certificate
	for _, der := range pair.Certificate {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return nil
		}
		chain = append(chain, parsed)
	}
	return chain
}

// expiry returns when the serving certificate of a source expires; zero while there is none.
func expiry(source Source) time.Time {
	if chain := leaf(source); len(chain) > 0 {
		return chain[0].NotAfter
	}
	return time.Time{}
}

// trusts reports whether a client with a bundle of PEM certificates accepts the certificate of a source. Without a
// bundle the API server trusts the roots of its system; those of this one are taken for the same.
func trusts(bundle []byte, source Source, now time.Time) bool {
	chain := leaf(source)
	if len(chain) == 0 {
		return false
	}
	var roots *x509.CertPool
	if len(bundle) > 0 {
		if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM(bundle) {
			return false
		}
	}
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: now})
	return err == nil
}
