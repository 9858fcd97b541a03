package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"

	cmauthority "github.com/cert-manager/cert-manager/pkg/server/tls/authority"
)

const (
	// backdating is how long before its creation a certificate becomes valid, so that clients with a slow clock
	// accept it. Certificates with a lifetime of less than twice that are backdated by half their lifetime.
	backdating = time.Hour
	// minLifetime is the minimum lifetime of a serving certificate. DynamicSource renews at two thirds of the
	// lifetime: near the end of a CA that is not rotated it would otherwise renew in a busy loop.
	minLifetime = 2 * time.Second
)

// authority is a CA: a certificate and the key that signs for it.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority returns a new self-signed CA.
func newAuthority(now time.Time, lifetime time.Duration) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of a CA: %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: secretName},
		NotBefore:             now.Add(-min(backdating, lifetime/2)),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make a CA: %w", err)
	}
	return &authority{cert, key}, nil
}

// valid reports whether the CA can sign at an instant.
func (a *authority) valid(now time.Time) bool {
	return a != nil && !now.Before(a.cert.NotBefore) && now.Before(a.cert.NotAfter)
}

// same reports whether two CAs have the same certificate.
func (a *authority) same(b *authority) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.cert.Equal(b.cert)
}

// made returns when the CA was created: it is backdated by an hour, or by half of its lifetime.
func (a *authority) made() time.Time {
	return a.cert.NotBefore.Add(min(backdating, a.cert.NotAfter.Sub(a.cert.NotBefore)/3))
}

// rotateAt returns when two thirds of the CA's lifetime are over.
func (a *authority) rotateAt() time.Time {
	return a.cert.NotAfter.Add(-a.cert.NotAfter.Sub(a.made()) / 3)
}

// sign returns a serving certificate for a template. It never outlives the CA.
func (a *authority) sign(template *x509.Certificate, now time.Time, lifetime time.Duration) (*x509.Certificate, error) {
	end := now.Add(lifetime)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	life := end.Sub(now)
	if life < minLifetime || !a.valid(now) {
		return nil, fmt.Errorf("%w: the CA is valid from %s to %s", cmauthority.ErrCertificateNotAvailable,
			a.cert.NotBefore.Format(time.RFC3339), a.cert.NotAfter.Format(time.RFC3339))
	}
	signed := *template
	signed.NotBefore = now.Add(-min(backdating, life/2))
	signed.NotAfter = end
	signed.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, &signed, a.cert, template.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign a serving certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}
