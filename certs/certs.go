// Package certs gives the webhook server its serving certificate. There is one interface to it,
// tls.Config.GetCertificate, and sources behind it: files, which something else writes and renews, and a
// self-signed certificate in memory, for trying things out on one machine.
package certs

import (
	"context"
	"crypto/tls"
	"fmt"

	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// Source gives the certificate to serve with.
type Source struct {
	// GetCertificate fits tls.Config.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// CABundle is what clients must trust, PEM-encoded; nil where whoever wrote the files knows it.
	CABundle []byte
	// Run keeps the certificate current until the context ends; nil where there is nothing to do.
	Run func(context.Context) error
}

// Files serves a PEM certificate and key from files and reads them again when they change.
func Files(certFile, keyFile string) (Source, error) {
	watcher, err := certwatcher.New(certFile, keyFile)
	if err != nil {
		return Source{}, fmt.Errorf("read the serving certificate: %w", err)
	}
	return Source{GetCertificate: watcher.GetCertificate, Run: watcher.Start}, nil
}

// SelfSigned makes a certificate for a host, valid for a year, whose key never leaves the process. It is for
// local use: a restart makes another one, and the webhook configurations must then be given its CABundle.
func SelfSigned(host string) (Source, error) {
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return Source{}, fmt.Errorf("make a self-signed certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return Source{}, fmt.Errorf("load the self-signed certificate: %w", err)
	}
	return Source{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil },
		CABundle:       certPEM,
	}, nil
}
