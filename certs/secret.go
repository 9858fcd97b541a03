package certs

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	cmauthority "github.com/cert-manager/cert-manager/pkg/server/tls/authority"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/opgate/opgate/internal/kept"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/internal/watched"
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

// secretName is the name of the Secret in which the replicas share a CA.
const secretName = kept.CA

// Keys of the Secret's data; values are PEM-encoded.
const (
	keySignerCert = corev1.TLSCertKey
	keySignerKey  = corev1.TLSPrivateKeyKey
	keyNextCert   = "next.crt"
	keyNextKey    = "next.key"
	keyBundle     = "ca.crt" // several certificates
)

// decode reads a Secret. What cannot be read is omitted and listed in problems. It returns nil for no Secret.
func decode(secret *corev1.Secret) *state {
	if secret == nil {
		return nil
	}
	s := &state{requested: secret.Annotations[metakey.RotateCA], acted: secret.Annotations[metakey.RotatedCA]}
	problem := func(what string, err error) {
		if err != nil {
			s.problems = append(s.problems, fmt.Sprintf("%s: %v", what, err))
		}
	}
	var err error
	s.signer, err = decodeAuthority(secret.Data[keySignerCert], secret.Data[keySignerKey])
	problem(keySignerCert+" and "+keySignerKey, err)
	s.next, err = decodeAuthority(secret.Data[keyNextCert], secret.Data[keyNextKey])
	if problem(keyNextCert+" and "+keyNextKey, err); err != nil {
		s.acted = "" // the rotation has to start again
	}
	retire := map[string]time.Time{}
	if text := secret.Annotations[metakey.CARetire]; text != "" {
		if err := json.Unmarshal([]byte(text), &retire); err != nil {
			problem(metakey.CARetire, errors.New("it is not a JSON object of times"))
			retire = nil
		}
	}
	certs, err := decodeBundle(secret.Data[keyBundle])
	problem(keyBundle, err)
	for _, c := range certs {
		s.add(anchor{cert: c, retire: retire[fingerprint(c)]})
	}
	if text := secret.Annotations[metakey.NextCAPublished]; text != "" {
		s.published, err = time.Parse(time.RFC3339Nano, text)
		problem(metakey.NextCAPublished, err)
	}
	return s
}

// decodeAuthority reads a CA, nil if there is none. Errors never contain the data: it could be a key.
func decodeAuthority(certPEM, keyPEM []byte) (*authority, error) {
	if len(certPEM) == 0 && len(keyPEM) == 0 {
		return nil, nil
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, errors.New("they are not a PEM certificate and the key that belongs to it")
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !cert.IsCA || !cert.BasicConstraintsValid || cert.KeyUsage != 0 &&
		cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, errors.New("the certificate is not one of a CA")
	}
	return &authority{cert, key}, nil
}

// decodeBundle reads PEM certificates. With an error it returns those that could be read.
func decodeBundle(data []byte) (certs []*x509.Certificate, err error) {
	for rest := data; len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return certs, errors.New("there is something that is not PEM")
		}
		cert, failed := x509.ParseCertificate(block.Bytes)
		if failed != nil || block.Type != "CERTIFICATE" {
			err = errors.New("there is something that is not a certificate")
			continue
		}
		certs = append(certs, cert)
	}
	return certs, err
}

func encodeBundle(anchors []anchor) []byte {
	var out []byte
	for _, a := range anchors {
		out = append(out, encodeCert(a.cert)...)
	}
	return out
}

func encodeCert(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

// fingerprint returns a short identifier of a certificate.
func fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:8])
}

func newSecret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Type: corev1.SecretTypeOpaque,
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{"app.kubernetes.io/name": "opgate"}}}
}

// encode returns the Secret for a state: a modified copy of the current one, or a new one if that is nil. Other data
// and annotations are kept. Changed reports whether it differs from the current one.
func encode(s *state, namespace string, current *corev1.Secret) (secret *corev1.Secret, changed bool, err error) {
	data := map[string][]byte{keySignerCert: nil, keySignerKey: nil, keyNextCert: nil, keyNextKey: nil,
		keyBundle: encodeBundle(s.anchors)}
	for _, ca := range []struct {
		*authority
		certKey, keyKey string
	}{{s.signer, keySignerCert, keySignerKey}, {s.next, keyNextCert, keyNextKey}} {
		if ca.authority == nil {
			continue
		}
		der, err := x509.MarshalPKCS8PrivateKey(ca.key)
		if err != nil {
			return nil, false, fmt.Errorf("encode the key of a CA: %w", err)
		}
		data[ca.certKey] = encodeCert(ca.cert)
		data[ca.keyKey] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	retire := map[string]time.Time{}
	for _, a := range s.anchors {
		if !a.retire.IsZero() {
			retire[fingerprint(a.cert)] = a.retire.UTC().Truncate(time.Second)
		}
	}
	annotations := map[string]string{metakey.RotateCA: s.requested, metakey.RotatedCA: s.acted, metakey.CARetire: "",
		metakey.NextCAPublished: ""}
	if len(retire) > 0 {
		text, err := json.Marshal(retire)
		if err != nil {
			return nil, false, fmt.Errorf("encode when certificates retire: %w", err)
		}
		annotations[metakey.CARetire] = string(text)
	}
	if !s.published.IsZero() {
		annotations[metakey.NextCAPublished] = s.published.UTC().Format(time.RFC3339Nano)
	}
	secret = newSecret(namespace, secretName)
	if current != nil {
		secret = current.DeepCopy()
	}
	secret.Data, secret.Annotations = merge(secret.Data, data), merge(secret.Annotations, annotations)
	changed = current == nil || !maps.EqualFunc(secret.Data, current.Data, bytes.Equal) ||
		!maps.Equal(secret.Annotations, current.Annotations)
	return secret, changed, nil
}

// merge returns a map with other entries for some keys, and without those of them that are empty.
func merge[V ~string | ~[]byte](current, entries map[string]V) map[string]V {
	merged := map[string]V{}
	maps.Copy(merged, current)
	for key, value := range entries {
		if merged[key] = value; len(value) == 0 {
			delete(merged, key)
		}
	}
	return merged
}

const (
	// signingSecret is the Secret in which the replicas share the key of marks, signingField its key.
	signingSecret = "opgate-marks"
	signingField  = "key"
	// signingSize is the size of the key in bytes, signingRetry the delay after a failed attempt to store it.
	signingSize  = 32
	signingRetry = 5 * time.Second
)

// SigningKey is the key with which the marks of Policies are signed: a marked Policy was verified by a replica of
// Opgate. The replicas share it in a Secret, which the first of them creates. If that is deleted, it is created again
// with the same key.
type SigningKey struct {
	secret    *watched.Object
	changed   chan struct{}
	key       atomic.Pointer[[]byte]
	log       logr.Logger
	namespace string
}

// NewSigningKey returns a SigningKey in a namespace. Start reads it.
func NewSigningKey(client dynamic.Interface, namespace string, log logr.Logger) *SigningKey {
	k := &SigningKey{namespace: namespace, changed: make(chan struct{}, 1), log: log}
	k.secret = watched.New(client, secretsResource, namespace, signingSecret,
		func(any) { signal.Put(k.changed) }, log)
	return k
}

// Key returns the key, nil while it is not known. It is shared and must not be modified.
func (k *SigningKey) Key() []byte {
	if key := k.key.Load(); key != nil {
		return *key
	}
	return nil
}

// Start keeps the key current until the context is cancelled.
func (k *SigningKey) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = k.secret.Start(ctx) })
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.changed:
		case <-retry:
		}
		retry = nil
		if err := k.refresh(ctx); err != nil && ctx.Err() == nil {
			k.log.Error(err, "key of marks not available, retrying", "secret", signingSecret)
			retry = time.After(signingRetry)
		}
	}
}

// refresh reads the key from the Secret. If that does not exist, it is created with the known key, or a new one; if
// another replica was faster, the watch delivers its key.
func (k *SigningKey) refresh(ctx context.Context) error {
	secret, err := secretOf(k.secret)
	if err != nil {
		return err
	}
	if secret == nil {
		key := k.Key()
		if key == nil {
			key = make([]byte, signingSize)
			_, _ = rand.Read(key) // which never fails
		}
		secret = newSecret(k.namespace, signingSecret)
		secret.Data = map[string][]byte{signingField: key}
		_, err = put(ctx, k.secret, secret)
		return err
	}
	key := secret.Data[signingField]
	if len(key) < signingSize {
		return errors.New("the Secret has no key of 32 bytes: delete it, and it is created again")
	}
	if !bytes.Equal(key, k.Key()) {
		k.key.Store(&key)
		k.log.Info("key of marks read", "secret", signingSecret)
	}
	return nil
}
