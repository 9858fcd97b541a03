package certs

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/kept"
	"github.com/opgate/opgate/internal/metakey"
)

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
	data := map[string][]byte{keyBundle: encodeBundle(s.anchors)}
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
	annotations := map[string]string{metakey.RotateCA: s.requested, metakey.RotatedCA: s.acted}
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

	if current == nil {
		secret = newSecret(namespace, secretName)
	} else {
		secret = current.DeepCopy()
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	for _, key := range []string{keySignerCert, keySignerKey, keyNextCert, keyNextKey, keyBundle} {
		if delete(secret.Data, key); len(data[key]) > 0 {
			secret.Data[key] = data[key]
		}
	}
	for _, key := range []string{metakey.RotateCA, metakey.RotatedCA, metakey.NextCAPublished, metakey.CARetire} {
		if delete(secret.Annotations, key); annotations[key] != "" {
			secret.Annotations[key] = annotations[key]
		}
	}
	changed = current == nil || !maps.EqualFunc(secret.Data, current.Data, bytes.Equal) ||
		!maps.Equal(secret.Annotations, current.Annotations)
	return secret, changed, nil
}
