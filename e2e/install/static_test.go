package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestStaticInstall: under the static policies of docs/backstop.md Opgate does what it does without them, a
// maintainer upgrades it, and a cluster admin removes it by the documented way alone.
func TestStaticInstall(t *testing.T) {
	t.Parallel()
	static := harness.NewStaticPolicies(t)
	s := start(t, cluster.Options{AdmissionConfig: static.Configuration}, nil)
	s.install(t)
	namespace := s.Govern(t)
	s.WantGate(t, namespace)
	s.wantBackstop(t, namespace)
	static.Write(t, s.Env, "")
	static.WaitInForce(t, s.Env, true)

	t.Run("edits of policies reach the admission policies", func(t *testing.T) { s.wantBackstop(t, s.Govern(t)) })
	t.Run("b4: what it records is its own", func(t *testing.T) { s.WantRecordsKept(t, 3) }) // a CA, a Lease, a record
	t.Run("another process leads, and writes them", func(t *testing.T) {
		s.killAll(t)
		s.wantBackstop(t, s.Govern(t))
	})
	t.Run("certificates rotate", func(t *testing.T) {
		before := s.signer(t)
		s.Admin(t, "annotate", "secret", "-n", cluster.OpgateNamespace, caSecret, "opgate.io/rotate-ca=static", "--as",
			harness.Maintainer, "--as-group", "system:masters")
		harness.Eventually(t, "another CA signs", func(context.Context) error {
			if s.signer(t) == before {
				return errors.New("the same does")
			}
			return nil
		})
		s.WantGate(t, namespace)
	})
	t.Run("what a maintainer damages is restored", func(t *testing.T) {
		policy := func() string {
			return s.Admin(t, "get", "validatingwebhookconfiguration", "opgate", "-o",
				"jsonpath={.webhooks[0].failurePolicy}")
		}
		before := policy()
		s.Admin(t, "patch", "validatingwebhookconfiguration", "opgate", "--as", harness.Maintainer, "--as-group",
			"system:masters", "--type=json",
			"--patch", `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`)
		harness.Eventually(t, "it is set back", func(context.Context) error {
			if now := policy(); now != before {
				return fmt.Errorf("failurePolicy is %s, want %s", now, before)
			}
			return nil
		})
	})
	t.Run("pods are replaced", func(t *testing.T) {
		s.Admin(t, "delete", "pods", "-n", cluster.OpgateNamespace, "--all", "--wait=false")
		s.WantGate(t, namespace)
	})
	upgrade := []string{"upgrade", "opgate", harness.ChartDir, "--reuse-values", "--set", "log.level=debug",
		"--namespace", cluster.OpgateNamespace,
		"--timeout", helmTimeout, "--wait"}
	t.Run("other users do not upgrade",
		func(t *testing.T) { s.wantHelmRefused(t, "is kept by files of the control plane", upgrade...) })
	t.Run("a maintainer does", func(t *testing.T) {
		s.RunHelm(t, append(upgrade[:len(upgrade):len(upgrade)], "--kube-as-user", harness.Maintainer,
			"--kube-as-group", "system:masters")...)
		if got := s.Admin(t, "get", "deployment", "-n", cluster.OpgateNamespace, "opgate", "-o",
			"jsonpath={.spec.template.spec.containers[0].args}"); !strings.Contains(got, "--log-level=debug") {
			t.Errorf("after the upgrade the arguments are %s", got)
		}
		s.WantGate(t, namespace)
	})
	s.WantNothingForbidden(t)
	t.Run("it is removed without the files", func(t *testing.T) {
		uninstall := []string{"uninstall", "opgate", "--namespace", cluster.OpgateNamespace, "--timeout", helmTimeout,
			"--wait"}
		s.wantHelmRefused(t, "failed to delete release", uninstall...) // all that Helm prints
		s.WantGate(t, namespace)
		static.Remove(t)
		static.WaitInForce(t, s.Env, false)
		s.RunHelm(t, uninstall...)
		s.WantUngated(t, namespace)
	})
}

// killAll ends all replicas, and waits until another process leads.
func (s *Site) killAll(t *testing.T) {
	t.Helper()
	holder := func() string {
		return s.Admin(t, "get", "lease", "-n", cluster.OpgateNamespace, "opgate-loop", "-o",
			"jsonpath={.spec.holderIdentity}")
	}
	killed := holder()
	for _, pod := range s.Pods(t) {
		if err := s.Node.Signal(pod, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, "another process leads", func(context.Context) error {
		if now := holder(); now == killed || now == "" {
			return fmt.Errorf("%q leads", now)
		}
		return nil
	})
}

// wantHelmRefused wants helm to fail on what the files of the control plane keep.
func (s *Site) wantHelmRefused(t *testing.T, says string, args ...string) {
	t.Helper()
	result, err := s.Helm(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	if out := result.Stdout + result.Stderr; result.ExitCode == 0 || !strings.Contains(out, says) {
		t.Errorf("helm %s: exit code %d\n%s", strings.Join(args, " "), result.ExitCode, out)
	}
}
