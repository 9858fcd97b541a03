package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// WebhookClientName is the common name of the certificate that the API server has for webhooks where Options say
// WebhookClient.
const WebhookClientName = "kube-apiserver-webhooks"

// WebhookClientCA is a PEM file with the CA of that certificate.
func (c *Cluster) WebhookClientCA() string { return filepath.Join(c.dir, "webhook-client-ca.crt") }

// WebhookClient returns a certificate that the same CA has signed for a user.
func (c *Cluster) WebhookClient(name string) (tls.Certificate, error) {
	ca, err := tls.LoadX509KeyPair(c.WebhookClientCA(), filepath.Join(c.dir, "webhook-client-ca.key"))
	if err != nil {
		return tls.Certificate{}, err
	}
	cert, key, err := signClient(ca, name)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

// writeAdmissionConfig returns the path of a file that makes the API server authenticate to webhooks by a client
// certificate.
func writeAdmissionConfig(dir string) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	authority, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "webhook-clients"}, key)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	caCert, caKey := encodePEM("CERTIFICATE", authority.Raw), encodePEM("PRIVATE KEY", der)
	ca, err := tls.X509KeyPair(caCert, caKey)
	if err != nil {
		return "", err
	}
	clientCert, clientKey, err := signClient(ca, WebhookClientName)
	if err != nil {
		return "", err
	}
	write := func(name string, content []byte) {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
		}
	}
	kubeconfig := filepath.Join(dir, "webhook-client.kubeconfig")
	marshal := func(content any) (data []byte) {
		if err == nil {
			data, err = json.Marshal(content)
		}
		return data
	}
	plugin := func(name string) map[string]any {
		return map[string]any{"name": name, "configuration": map[string]any{
			"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
			"kubeConfigFile": kubeconfig,
		}}
	}
	write("webhook-client-ca.crt", caCert)
	write("webhook-client-ca.key", caKey)
	// A name is host and port of a webhook; here these are not known yet.
	write(filepath.Base(kubeconfig), marshal(map[string]any{"apiVersion": "v1", "kind": "Config", "users": []any{
		map[string]any{"name": "*", "user": map[string]any{"client-certificate-data": clientCert,
			"client-key-data": clientKey}},
	}}))
	write("admission.json", marshal(map[string]any{"apiVersion": "apiserver.config.k8s.io/v1",
		"kind":    "AdmissionConfiguration",
		"plugins": []any{plugin("MutatingAdmissionWebhook"), plugin("ValidatingAdmissionWebhook")}}))
	return filepath.Join(dir, "admission.json"), err
}

// signClient makes a client certificate and its key, as PEM.
func signClient(ca tls.Certificate, name string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	parent, err := x509.ParseCertificate(ca.Certificate[0])
	if err != nil {
		return nil, nil, err
	}
	now := time.Now() //nolint:forbidigo // certificates are valid by the clock of this machine
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(tokenLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, parent, private.Public(), ca.PrivateKey)
	if err != nil {
		return nil, nil, err
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return encodePEM("CERTIFICATE", der), encodePEM("PRIVATE KEY", privateDER), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
