package install

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestOpenShift applies the overlay for OpenShift with certificates of its service CA operator, whose part the test
// plays: it writes the Secret that the Service asks for, and the caBundle of each object that asks for one.
func TestOpenShift(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.openShiftOLM(t)
	s.EnsureNamespace(t, "openshift-marketplace", true) // every OpenShift has it
	harness.Kubectl(t, s.Cluster, cluster.Admin, s.withServiceCA(t), "apply", "--server-side", "-f", "-")
	t.Run("nothing is locked before certificates exist", func(t *testing.T) { s.wantNothingLocked(t) })

	first := newServiceCA(t)
	s.issue(t, first, first.pem)
	s.Admin(t, "rollout", "status", "deployment", "-n", cluster.OpgateNamespace, "opgate")
	namespace := s.Govern(t)
	s.WantGate(t, namespace)
	if err := s.converts(namespace)(t.Context()); err != nil {
		t.Error(err)
	}
	t.Run("OLM is trusted where OpenShift runs it", func(t *testing.T) {
		harness.Eventually(t, "a pod says so", func(ctx context.Context) error {
			_, text, err := harness.GetURL(ctx, "http://"+s.Pods(t)[0].Addresses["metrics"]+"/metrics")
			if err == nil && !strings.Contains(text, `opgate_olm_identity_trusted{reason="trusted"} 1`) {
				err = fmt.Errorf("metrics do not")
			}
			return err
		})
	})
	t.Run("another CA is served without a restart", func(t *testing.T) {
		pods := s.Pods(t)
		second := newServiceCA(t)
		s.issue(t, second, append(first.pem, second.pem...)) // both, as the operator does it
		harness.Eventually(t, "all pods serve a certificate of the new CA", func(context.Context) error {
			for i, served := range s.served(t) {
				if err := served.CheckSignatureFrom(second.certificate); err != nil {
					return fmt.Errorf("pod %d: %w", i, err)
				}
			}
			return nil
		})
		s.WantGate(t, namespace)
		for i, pod := range s.Pods(t) {
			if pod.PID != pods[i].PID {
				t.Errorf("pod %s has been restarted", pod.Name)
			}
		}
	})
	t.Run("without the component it makes its own", func(t *testing.T) {
		harness.Kubectl(t, s.Cluster, cluster.Admin, s.overlay(t, "openshift"), "apply", "--server-side", "-f", "-")
		s.Admin(t, "rollout", "status", "deployment", "-n", cluster.OpgateNamespace, "opgate")
		s.WantGate(t, namespace)
	})
	s.WantNothingForbidden(t)
}

// openShiftOLM creates the account that OLM runs as on OpenShift, before Opgate, as there.
func (s *Site) openShiftOLM(t *testing.T) {
	t.Helper()
	s.Admin(t, "create", "namespace", harness.OpenShiftNamespace)
	s.Admin(t, "create", "serviceaccount", harness.OLMAccount, "-n", harness.OpenShiftNamespace)
	s.Admin(t, "create", "clusterrolebinding", "olm-operator-binding-openshift-operator-lifecycle-manager",
		"--clusterrole=cluster-admin",
		"--serviceaccount="+harness.OpenShiftNamespace+":"+harness.OLMAccount)
}

// withServiceCA builds the overlay for OpenShift with the component for its service CA, as docs/install.md has it.
func (s *Site) withServiceCA(t *testing.T) string {
	t.Helper()
	// kustomize takes no absolute paths, and compares paths without symbolic links.
	directory, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := filepath.Abs(filepath.Join("..", "..", "manifests"))
	if err != nil {
		t.Fatal(err)
	}
	if manifests, err = filepath.Rel(directory, manifests); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("[../openshift]", "["+manifests+"/overlays/openshift]", "[../../components",
		"["+manifests+"/components").
		Replace(DocumentedBlock(t, "components/service-ca"))
	if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	built := s.Admin(t, "kustomize", directory)
	if !strings.Contains(built, "--tls-cert-file") {
		t.Fatalf("%s makes no use of certificates in files", text)
	}
	return Hasten(t, built)
}

// serviceCA is a CA of OpenShift's service CA operator.
type serviceCA struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newServiceCA(t *testing.T) serviceCA {
	t.Helper()
	certPEM, keyPEM := harness.Authority(t, time.Hour)
	block, _ := pem.Decode(certPEM)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	block, _ = pem.Decode(keyPEM)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return serviceCA{certificate: certificate, key: key.(*ecdsa.PrivateKey), pem: certPEM}
}

// sign returns a certificate for a Service, and its key, as PEM.
func (ca serviceCA) sign(t *testing.T, service string) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	name := service + "." + cluster.OpgateNamespace + ".svc"
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		DNSNames:  []string{name, name + ".cluster.local"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// issue writes what the objects ask for by their annotations: caBundles first, then the certificate.
func (s *Site) issue(t *testing.T, ca serviceCA, bundle []byte) {
	t.Helper()
	asked := 0
	for resource, name := range registrations {
		kind := resource.Resource + "." + resource.Group
		if s.Admin(t, "get", kind, name, "-o",
			`jsonpath={.metadata.annotations.service\.beta\.openshift\.io/inject-cabundle}`) != "true" {
			continue
		}
		asked++
		paths := []string{"/spec/conversion/webhook/clientConfig/caBundle"}
		if resource != harness.DefinitionResource {
			paths = nil
			for i := range strings.Fields(s.Admin(t, "get", kind, name, "-o", "jsonpath={.webhooks[*].name}")) {
				paths = append(paths, fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i))
			}
		}
		var operations []map[string]string
		for _, path := range paths {
			operations = append(operations, map[string]string{"op": "add", "path": path,
				"value": base64.StdEncoding.EncodeToString(bundle)})
		}
		patch, err := json.Marshal(operations)
		if err != nil {
			t.Fatal(err)
		}
		s.Admin(t, "patch", kind, name, "--type=json", "--patch", string(patch))
	}
	if asked != len(registrations) {
		t.Fatalf("%d objects ask for a caBundle, want %d", asked, len(registrations))
	}
	secret := s.Admin(t, "get", "service", "-n", cluster.OpgateNamespace, "opgate-webhook", "-o",
		`jsonpath={.metadata.annotations.service\.beta\.openshift\.io/serving-cert-secret-name}`)
	if secret == "" {
		t.Fatal("the Service asks for no certificate")
	}
	certPEM, keyPEM := ca.sign(t, "opgate-webhook")
	harness.Kubectl(t, s.Cluster, cluster.Admin, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": %q, "name": %q}, "type": "kubernetes.io/tls",
		"data": {"tls.crt": %q, "tls.key": %q}}`, cluster.OpgateNamespace, secret, base64.StdEncoding.EncodeToString(certPEM), base64.StdEncoding.EncodeToString(keyPEM)), "apply", "-f", "-")
}
