package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

// TestSelfSigned serves with the certificate and connects as a client that trusts nothing but its CA.
func TestSelfSigned(t *testing.T) {
	source, bundle, err := SelfSigned("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if !source.Healthy() {
		t.Error("it is not healthy")
	}
	if err := dial(t, source, bundle, "127.0.0.1"); err != nil {
		t.Error(err)
	}
	_, other, err := SelfSigned("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if err := dial(t, source, other, "127.0.0.1"); err == nil {
		t.Error("a client that trusts another CA accepts it")
	}
}

// dial connects to a server with a source, as a client that trusts a bundle.
func dial(t *testing.T, source Source, bundle []byte, name string) error {
	t.Helper()
	client, server := net.Pipe()
	defer func() { _ = client.Close() }()
	go func() {
		_ = tls.Server(server, &tls.Config{GetCertificate: source.GetCertificate,
			MinVersion: tls.VersionTLS12}).Handshake()
		_ = server.Close()
	}()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("the CA bundle is not PEM")
	}
	return tls.Client(client, &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12}).Handshake()
}

func TestFilesThatAreNotThere(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "tls.crt")
	if _, err := Files(missing, missing, time.Now); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("error %v does not name the file", err)
	}
}

// TestFilesAreReadAgain replaces a certificate under a running source.
func TestFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func() (bundle []byte) {
		bundle, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{keyFile: key, certFile: bundle} {
			if err := os.WriteFile(name+".new", content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(name+".new", name); err != nil {
				t.Fatal(err)
			}
		}
		return bundle
	}
	first := write()
	now := time.Now()
	source, err := Files(certFile, keyFile, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- source.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	if !source.Healthy() || !trusts(first, source, now) {
		t.Error("the first certificate is not served")
	}
	second := write()
	for !trusts(second, source, now) { // until the test times out
		if !source.Healthy() {
			t.Fatal("neither certificate is served")
		}
	}
	if trusts(first, source, now) {
		t.Error("a client of the first certificate trusts the second")
	}
	if now = now.Add(2 * 365 * 24 * time.Hour); source.Healthy() || trusts(second, source, now) {
		t.Error("an expired certificate is healthy")
	}
}
