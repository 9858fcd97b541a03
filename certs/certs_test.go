package certs

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"strings"
	"testing"
)

// TestSelfSigned serves with the certificate and connects as a client that trusts nothing but its CA.
func TestSelfSigned(t *testing.T) {
	source, err := SelfSigned("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: source.GetCertificate, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_ = conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	}()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(source.CABundle) {
		t.Fatal("the CA bundle is not PEM")
	}
	conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

func TestFilesThatAreNotThere(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "tls.crt")
	if _, err := Files(missing, missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("error %v does not name the file", err)
	}
}
