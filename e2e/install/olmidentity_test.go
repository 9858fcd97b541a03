package install

import (
	"os"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestA1ChartFindsOLM installs the chart, without effect, where OLM runs once, twice and not at all (threat O16): it
// never guesses.
func TestA1ChartFindsOLM(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, cluster.Options{Bare: true, Audit: true, Log: os.Stderr})
	install := func(t *testing.T, args ...string) cluster.Result {
		t.Helper()
		result, err := e.Helm(t.Context(),
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
			"--olm-identity=" + identity + "\n":                  1,
			"--olm-namespace-uid=" + uid + "\n":                  1,
			"request.userInfo.username == '" + identity + "' &&": 9,
			// in the conditions, and in the annotation that they are set back by
			"request.userInfo.username": 18,
			"OLM is " + identity + ".":  1,
		} {
			if n := strings.Count(got.Stdout, want); n != times {
				t.Errorf("%q: %q is there %d times, want %d", args, want, n, times)
			}
		}
	}
	refuses := func(t *testing.T, says string, args ...string) {
		t.Helper()
		got := install(t, args...)
		for _, want := range []string{says, "olm.identity",
			"kubectl get deployments --all-namespaces --field-selector metadata.name=olm-operator"} {
			if got.ExitCode == 0 || !strings.Contains(got.Stderr, want) {
				t.Errorf("%q: exit code %d\n%s\nwant it to say %q", args, got.ExitCode, got.Stderr, want)
			}
		}
	}
	uidOf := func(namespace string) string {
		return harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", "namespace", namespace, "-o",
			"jsonpath={.metadata.uid}")
	}
	const foreign = "system:serviceaccount:" + harness.OpenShiftNamespace + ":" + harness.OLMAccount

	t.Run("once", func(t *testing.T) {
		renders(t, cluster.OLMUserName, uidOf(cluster.OLMNamespace))
		printed := harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", "deployments", "--all-namespaces",
			"--field-selector", "metadata.name=olm-operator",
			"-o", `jsonpath={range .items[*]}system:serviceaccount:{.metadata.namespace}:{.spec.template.spec.serviceAccountName}{"\n"}{end}`)
		if printed != cluster.OLMUserName+"\n" {
			t.Errorf("the command in the message prints %q", printed)
		}
	})
	t.Run("set", func(t *testing.T) {
		// Where OLM does not run as the account, the namespace is not acknowledged.
		renders(t, "system:serviceaccount:olm:other", "", "--set", "olm.identity=system:serviceaccount:olm:other")
		renders(t, foreign, "7d9c", "--set", "olm.identity="+foreign+",olm.namespaceUID=7d9c")
	})
	t.Run("twice", func(t *testing.T) {
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "namespace", harness.OpenShiftNamespace)
		if err := e.CreateOLMDeployment(t.Context(), harness.OpenShiftNamespace, harness.OLMAccount); err != nil {
			t.Fatal(err)
		}
		refuses(t, "OLM was found twice, as "+cluster.OLMUserName+" and "+foreign)
		renders(t, foreign, uidOf(harness.OpenShiftNamespace), "--set", "olm.identity="+foreign)
	})
	t.Run("on OpenShift", func(t *testing.T) {
		if err := e.DeleteOLMDeployment(t.Context(), cluster.OLMNamespace); err != nil {
			t.Fatal(err)
		}
		renders(t, foreign, uidOf(harness.OpenShiftNamespace))
	})
	t.Run("not at all", func(t *testing.T) {
		if err := e.DeleteOLMDeployment(t.Context(), harness.OpenShiftNamespace); err != nil {
			t.Fatal(err)
		}
		refuses(t, "OLM was not found: there is no Deployment olm-operator")
		refuses(t, "On a hosted control plane (HyperShift, ROSA HCP, ARO HCP), set olm.identity to the user that OLM authenticates as: system:admin")
		renders(t, "system:admin", "", "--set", "olm.identity=system:admin")
		renders(t, cluster.OLMUserName, "", "--set", "olm.identity="+cluster.OLMUserName)
	})
}
