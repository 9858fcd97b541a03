package install

import (
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// findsOLM installs the chart, without effect, where OLM runs once, twice and not at all (threat O16): it never guesses.
// What it makes of values is in TestValues of tools/chart.
func (s *Site) findsOLM(t *testing.T) {
	install := func(t *testing.T, args ...string) cluster.Result {
		t.Helper()
		result, err := s.Helm(t.Context(),
			append([]string{"install", "opgate", harness.ChartDir, "--namespace", cluster.OpgateNamespace,
				"--dry-run=server"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	renders := func(t *testing.T, identity, uid string, args ...string) {
		t.Helper()
		got := install(t, args...)
		if got.ExitCode != 0 {
			t.Errorf("%q: %s", args, got.Stderr)
			return
		}
		for want, times := range map[string]int{
			"--olm-identity=" + identity + "\n": 1,
			"--olm-namespace-uid=" + uid + "\n": 1,
			"OLM is " + identity + ".":          1,
		} {
			if n := strings.Count(got.Stdout, want); n != times {
				t.Errorf("%q: %q is there %d times, want %d", args, want, n, times)
			}
		}
	}
	refuses := func(t *testing.T, says ...string) {
		t.Helper()
		got := install(t)
		for _, want := range append(says, "olm.identity",
			"kubectl get deployments --all-namespaces --field-selector metadata.name=olm-operator") {
			if got.ExitCode == 0 || !strings.Contains(got.Stderr, want) {
				t.Errorf("exit code %d\n%s\nwant it to say %q", got.ExitCode, got.Stderr, want)
			}
		}
	}
	uidOf := func(namespace string) string {
		return s.Admin(t, "get", "namespace", namespace, "-o", "jsonpath={.metadata.uid}")
	}
	remove := func(namespace string) {
		t.Helper()
		if err := s.DeleteOLMDeployment(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
	}
	create := func(namespace, account string) {
		t.Helper()
		if err := s.CreateOLMDeployment(t.Context(), namespace, account); err != nil {
			t.Fatal(err)
		}
	}
	const foreign = "system:serviceaccount:" + harness.OpenShiftNamespace + ":" + harness.OLMAccount

	t.Run("once", func(t *testing.T) {
		renders(t, cluster.OLMUserName, uidOf(cluster.OLMNamespace))
		printed := s.Shell(t, ShellSteps(t, "../../docs/install.md", "--field-selector metadata.name=olm-operator")[0])
		if printed != cluster.OLMUserName+"\n" {
			t.Errorf("the command in the message prints %q", printed)
		}
	})
	t.Run("twice", func(t *testing.T) {
		s.Admin(t, "create", "namespace", harness.OpenShiftNamespace)
		create(harness.OpenShiftNamespace, harness.OLMAccount)
		refuses(t, "OLM was found twice, as "+cluster.OLMUserName+" and "+foreign)
		renders(t, foreign, uidOf(harness.OpenShiftNamespace), "--set", "olm.identity="+foreign)
	})
	remove(cluster.OLMNamespace)
	t.Run("on OpenShift", func(t *testing.T) { renders(t, foreign, uidOf(harness.OpenShiftNamespace)) })
	remove(harness.OpenShiftNamespace)
	t.Run("not at all", func(t *testing.T) {
		refuses(t, "OLM was not found: there is no Deployment olm-operator",
			"On a hosted control plane (HyperShift, ROSA HCP, ARO HCP), set olm.identity to the user that OLM authenticates as: system:admin")
	})
	create(cluster.OLMNamespace, harness.OLMAccount)
}
