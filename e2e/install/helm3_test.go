package install

import (
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestHelm3 installs, tests, upgrades and removes a release with Helm 3, which merges what it applies by itself: what
// the pods have written into the webhook configurations stays. Helm 4 takes the release over.
func TestHelm3(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.helm3(t, "install", "opgate", harness.ChartDir, "--create-namespace", "--wait", "--set", Quick())
	namespace := s.Govern(t)
	s.WantGate(t, namespace)
	s.wantRules(t)
	t.Run("helm test", func(t *testing.T) {
		if got := s.helm3(t, "test", "opgate", "--logs"); !strings.Contains(got, "the gate works") {
			t.Errorf("it printed\n%s", got)
		}
		s.wantVerified(t)
	})
	for _, upgrade := range []struct {
		name    string
		helm    func(t *testing.T, args ...string) string
		seconds string
	}{
		{name: "upgrade", helm: s.helm3, seconds: "7"},
		{name: "upgrade by Helm 4", helm: s.RunHelm, seconds: "8"},
	} {
		t.Run(upgrade.name, func(t *testing.T) {
			upgrade.helm(t, "upgrade", "opgate", harness.ChartDir, "--reset-then-reuse-values", "--wait", "--set",
				"webhooks.timeoutSeconds="+upgrade.seconds)
			s.WantGate(t, namespace)
			s.wantRules(t)
			got := s.Admin(t, "get", "validatingwebhookconfiguration", "opgate", "-o",
				"jsonpath={.webhooks[0].timeoutSeconds}")
			if got != upgrade.seconds {
				t.Errorf("timeoutSeconds is %s, want %s", got, upgrade.seconds)
			}
		})
	}
	s.WantNothingForbidden(t)
	t.Run("uninstall", func(t *testing.T) {
		s.helm3(t, "uninstall", "opgate", "--wait")
		s.WantUngated(t, namespace)
		s.wantPolicies(t, namespace)
	})
	if got := s.Admin(t, "get", "deployments", "-n", cluster.OpgateNamespace, "-o", "name"); got != "" {
		t.Errorf("it has left %s", got)
	}
}
