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
	// backdating is how long before its making a certificate begins to be valid: clients whose clock is behind
	// accept it all the same. Certificates that live less than two of these are backdated by half their life.
	backdating = time.Hour
	// shortestLife is what a serving certificate must live at least. DynamicSource renews at two thirds of the
	// life: as a CA that nobody rotates comes to its end, it would otherwise renew without a pause.
	shortestLife = 2 * time.Second
)

// authority is a CA: a certificate and the key that signs for it.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority makes a CA.
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

// valid tells whether a CA can sign now.
func (a *authority) valid(now time.Time) bool {
	return a != nil && !now.Before(a.cert.NotBefore) && now.Before(a.cert.NotAfter)
}

// same tells whether two are the same certificate.
func (a *authority) same(b *authority) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.cert.Equal(b.cert)
}

// made is when a CA was made: it was backdated by an hour, or by half of what it had to live.
func (a *authority) made() time.Time {
	return a.cert.NotBefore.Add(min(backdating, a.cert.NotAfter.Sub(a.cert.NotBefore)/3))
}

// rotateAt is when a CA has lived two thirds of its life.
func (a *authority) rotateAt() time.Time {
	return a.cert.NotAfter.Add(-a.cert.NotAfter.Sub(a.made()) / 3)
}

// sign makes a serving certificate from a template. It never outlives the CA.
func (a *authority) sign(template *x509.Certificate, now time.Time, lifetime time.Duration) (*x509.Certificate, error) {
	end := now.Add(lifetime)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	life := end.Sub(now)
	if life < shortestLife || !a.valid(now) {
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
