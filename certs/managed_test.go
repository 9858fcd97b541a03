package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	cmauthority "github.com/cert-manager/cert-manager/pkg/server/tls/authority"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// dynamicTemplate is a template as DynamicSource passes it to Sign.
func dynamicTemplate(t testing.TB) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &x509.Certificate{PublicKey: key.Public(), DNSNames: dnsNames("opgate-system"),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
}

// TestG21ClockSkew verifies a certificate as clients do whose clocks are wrong by five minutes.
func TestG21ClockSkew(t *testing.T) {
	for name, ca := range map[string]*authority{
		"right after the CA was made": newCA(t, start, usual.CA),
		"in the middle of its life":   newCA(t, start.Add(-usual.CA/2), usual.CA),
		"an hour before its end":      newCA(t, start.Add(time.Hour-usual.CA), usual.CA),
	} {
		leaf, err := ca.sign(dynamicTemplate(t), start, usual.Leaf)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(ca.cert)
		for clock, good := range map[time.Duration]bool{-5 * time.Minute: true, 0: true, 5 * time.Minute: true,
			-2 * time.Hour: false} {
			_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "opgate-webhook.opgate-system.svc",
				CurrentTime: start.Add(clock)})
			if (err == nil) != good {
				t.Errorf("%s, client %s off: %v", name, clock, err)
			}
		}
	}
}

// TestLastSeconds does not sign when a certificate would end before it could be renewed: DynamicSource would
// renew in a busy loop.
func TestLastSeconds(t *testing.T) {
	for left, good := range map[time.Duration]bool{time.Minute: true, minLifetime: true, time.Second: false, 0: false,
		-time.Hour: false} {
		leaf, err := newCA(t, start.Add(left-time.Hour), time.Hour).sign(dynamicTemplate(t), start, usual.Leaf)
		if good != (err == nil) || !good && !errors.Is(err, cmauthority.ErrCertificateNotAvailable) {
			t.Errorf("%s before the end of the CA: %v", left, err)
		}
		if good {
			if renew := leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / 3); renew.Before(start.Add(left / 3)) {
				t.Errorf("%s before the end of the CA: it is renewed at %s", left, renew)
			}
		}
	}
}

// TestManaged observes a Secret as a watch delivers it, and serves a certificate of its CA. There is no API server.
func TestManaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		registry := prometheus.NewRegistry()
		metrics := NewMetrics(registry)
		m, _ := NewManaged(Options{Client: dynamic.NewForConfigOrDie(&rest.Config{Host: "127.0.0.1:1"}), Namespace: "opgate-system",
			Lifetimes: usual, Metrics: metrics, Now: func() time.Time { return now }})
		metrics.Serving(m)
		if m.Healthy() {
			t.Error("it is healthy without a certificate")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.DynamicSource.Start(logr.NewContext(ctx, logr.Discard())) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		store := func(s *state, change func(*corev1.Secret)) {
			t.Helper()
			if s == nil {
				for _, held := range m.controller.secret.Informer.GetStore().List() {
					if err := m.controller.secret.Informer.GetStore().Delete(held); err != nil {
						t.Fatal(err)
					}
				}
			} else {
				secret, _, err := encode(s, "opgate-system", nil)
				if err != nil {
					t.Fatal(err)
				}
				if change != nil {
					change(secret)
				}
				content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(secret)
				if err != nil {
					t.Fatal(err)
				}
				if err := m.controller.secret.Informer.GetStore().Add(&unstructured.Unstructured{Object: content}); err != nil {
					t.Fatal(err)
				}
			}
			m.read(nil)
		}
		serves := func(ca *authority) {
			t.Helper()
			time.Sleep(time.Minute) // the source tries every second
			synctest.Wait()
			if !trusts(encodeCert(ca.cert), m, now) {
				t.Fatal("it does not serve a certificate of the CA")
			}
			for _, name := range dnsNames("opgate-system") {
				if err := dial(t, m, encodeCert(ca.cert), name); err != nil {
					t.Error(err)
				}
			}
			if !m.Healthy() {
				t.Error("it is not healthy")
			}
		}
		first, second := newCA(t, now, usual.CA), newCA(t, now, usual.CA)
		store(anchored(state{signer: first}), nil)
		serves(first)
		store(anchored(state{signer: first, next: second}), nil)
		serves(first)
		store(anchored(state{signer: second}), nil)
		serves(second)
		for name, change := range map[string]func(s *corev1.Secret){
			"a damaged key": func(s *corev1.Secret) { s.Data[keySignerKey] = []byte("garbage") },
			"a CA that clients do not trust": func(s *corev1.Secret) {
				s.Data[keyBundle] = encodeCert(
					second.cert)
			},
			"an empty Secret": func(s *corev1.Secret) { s.Data = nil },
			"a Secret that is about to be filled": func(s *corev1.Secret) {
				delete(s.Data,
					keySignerCert)
				delete(s.Data, keySignerKey)
			},
		} {
			store(anchored(state{signer: newCA(t, now, usual.CA)}), change)
			if s := m.ca.current.Load(); !s.signer.same(second) {
				t.Errorf("%s replaces the CA in memory", name)
			}
		}
		store(nil, nil)
		serves(second)

		for certificate, end := range map[string]time.Time{"ca": second.cert.NotAfter, "serving": expiry(m)} {
			if got := ends(t, registry, certificate); got != float64(end.Unix()) {
				t.Errorf("the metric says that %s ends at %f, want %s", certificate, got, end)
			}
		}
		now = now.Add(2 * usual.Leaf)
		if m.Healthy() {
			t.Error("it is healthy with an expired certificate")
		}
	})
}

// ends returns when a certificate expires, as the metric reports it.
func ends(t *testing.T, registry *prometheus.Registry, certificate string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "opgate_certificate_expiration_timestamp_seconds" &&
				metric.GetLabel()[0].GetValue() == certificate {
				return metric.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no metric for %s", certificate)
	return 0
}
