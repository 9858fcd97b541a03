package install

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/tail"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestInstallCertManager has Opgate installed by helm with certificates from the real cert-manager, and goes from one
// source of certificates to the other. Its cluster is its own, since definitions come and go.
func TestInstallCertManager(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.startCertManager(t)
	s.install(t, "certificates.mode=cert-manager", patiently())
	namespace := s.Govern(t)
	s.WantGate(t, namespace)
	s.underLoad(t, namespace, func() {
		for _, mode := range []string{"self-managed", "cert-manager"} {
			s.RunHelm(t, "upgrade", "opgate", harness.ChartDir, "--reuse-values", "--set",
				"certificates.mode="+mode, "--wait")
		}
	})
}

// byKubectl installs, upgrades and removes Opgate by plain manifests, with certificates from cert-manager.
func (s *Site) byKubectl(t *testing.T) {
	manifests := s.overlay(t, "cert-manager")
	apply := func() { harness.Kubectl(t, s.Cluster, cluster.Admin, manifests, "apply", "--server-side", "-f", "-") }
	apply()
	s.Admin(t, "rollout", "status", "deployment", "-n", cluster.OpgateNamespace, "opgate")
	namespace := s.Govern(t)
	s.WantGate(t, namespace)
	if err := s.converts(namespace)(t.Context()); err != nil {
		t.Error(err)
	}
	t.Run("another certificate is served without a restart", func(t *testing.T) {
		pods := s.Pods(t)
		served := s.served(t)
		s.underLoad(t, namespace, func() {
			// cert-manager makes another at once
			s.Admin(t, "delete", "secret", "-n", cluster.OpgateNamespace, "opgate-webhook-tls")
			harness.Eventually(t, "all pods serve it", func(context.Context) error {
				now := s.served(t)
				for i := range now {
					if now[i].Equal(served[i]) {
						return fmt.Errorf("pod %d does not", i)
					}
				}
				return nil
			})
		})
		for i, pod := range s.Pods(t) {
			if pod.PID != pods[i].PID {
				t.Errorf("pod %s has been restarted", pod.Name)
			}
		}
	})
	apply() // once more, over what has been filled in
	s.WantGate(t, namespace)
	for _, step := range ShellSteps(t, "../../docs/install.md", "delete -k") {
		s.Shell(t, strings.ReplaceAll(step, "overlays/self-managed", "overlays/cert-manager"))
	}
	s.WantUngated(t, namespace)
	s.wantPolicies(t, namespace)
}

// startCertManager runs cert-manager's controllers and its CA injector until the end of the test.
func (s *Site) startCertManager(t *testing.T) {
	t.Helper()
	binaries, err := assets.FindCertManager(t.Context(), assets.Options{Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	s.Admin(t, "apply", "--server-side", "-f", binaries.CRDs)
	s.Admin(t, "wait", "--for=condition=Established", "crd", "certificates.cert-manager.io", "issuers.cert-manager.io")
	for name, path := range map[string]string{"cert-manager": binaries.Controller, "cainjector": binaries.CAInjector} {
		process, err := s.StartCompanion(t.Context(), name, nil, path, "--kubeconfig", s.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		s.AtStop(process.Stop)
		t.Cleanup(func() {
			if err := process.Err(); err != nil {
				t.Error(err)
			}
			if t.Failed() {
				t.Logf("%s logged at last:\n%s", name, tail.File(process.LogPath(), 10))
			}
		})
	}
}

// served are the certificates that the pods serve.
func (s *Site) served(t *testing.T) []*x509.Certificate {
	t.Helper()
	var all []*x509.Certificate
	for _, pod := range s.Pods(t) {
		certificate, err := certificateAt(pod.Addresses["webhook"])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, certificate)
	}
	return all
}

// certificateAt is what a server reports that it is, whether or not that is to be trusted.
func certificateAt(address string) (*x509.Certificate, error) {
	connection, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	if err != nil {
		return nil, err
	}
	return connection.ConnectionState().PeerCertificates[0], connection.Close()
}
