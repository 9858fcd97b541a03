package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// checkedItem is an element of the JSON of opgate check.
type checkedItem struct {
	File, Kind, Namespace, Name, Decision string
	Reasons                               []struct{ Rule, Source, Message string }
}

// check runs opgate check with a kubeconfig.
func check(t *testing.T, e *harness.Env, kubeconfig string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), harness.Opgate(t, e.Cluster),
		append([]string{"check", "--live", "--kubeconfig", kubeconfig}, args...)...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		failed, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			t.Fatal(err)
		}
		code = failed.ExitCode()
	}
	return out.String(), problems.String(), code
}

// checked returns what opgate check reports of one namespace, as "decision kind name: first reason".
func checked(t *testing.T, e *harness.Env, namespace string, args ...string) (lines []string) {
	t.Helper()
	stdout, stderr, code := check(t, e, e.Kubeconfig(), append(args, "-o", "json")...)
	if code > 1 {
		t.Fatalf("opgate check %q: exit code %d: %s", args, code, stderr)
	}
	var found struct{ Items []checkedItem }
	if err := json.Unmarshal([]byte(stdout), &found); err != nil {
		t.Fatalf("%v in %q", err, stdout)
	}
	for _, item := range found.Items {
		if item.Namespace != namespace {
			continue
		}
		line := item.Decision + " " + item.Kind + " " + item.Name
		if len(item.Reasons) > 0 {
			line += ": " + item.Reasons[0].Message
		}
		lines = append(lines, line)
	}
	return lines
}

// occupied returns a namespace with an installed operator that its policy does not list, a plan that waits for what the
// policy does list, and an outdated plan.
func occupied(t *testing.T, e *harness.Env) (namespace string, policy *unstructured.Unstructured) {
	t.Helper()
	namespace = e.NewNamespace(t)
	properties := `{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.0"}}]}`
	e.Put(t, harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: etcdoperator.v0.9.0
  namespace: %s
  annotations: {operatorframework.io/properties: '%s'}
spec:
  displayName: etcd
  install: {strategy: deployment, spec: {deployments: []}}
`, namespace, properties))
	subscription := harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Manual")
	subscription.Object["status"] = map[string]any{"lastUpdated": "2026-01-01T00:00:00Z",
		"currentCSV":   harness.AllowedCSV,
		"installedCSV": "etcdoperator.v0.9.0", "installPlanRef": map[string]any{"name": "install-waits",
			"namespace": namespace}}
	e.Put(t, subscription)
	for _, name := range []string{"install-waits", "install-outdated"} {
		e.Put(t, harness.InstallPlan(namespace, name, harness.AllowedVersion))
	}
	policy = harness.OperatorPolicy(namespace)
	e.Put(t, policy)
	e.Sync(t)
	return namespace, policy
}

// TestCheckCluster judges what a cluster has, and files by that.
func TestCheckCluster(t *testing.T) {
	e := harness.Shared(t)
	namespace, policy := occupied(t, e)
	refused := fmt.Sprintf("Deny ClusterServiceVersion etcdoperator.v0.9.0: etcdoperator.v0.9.0 is not allowed by OperatorPolicy %s/%s (bundle/version): allowed is %s",
		cluster.PolicyNamespace, namespace, harness.AllowedCSV)
	want := []string{refused, "Allow InstallPlan install-waits"}
	if got := checked(t, e, namespace); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if stdout, _, code := check(t, e, e.Kubeconfig()); code != 1 ||
		!strings.Contains(stdout, "Deny  clusterserviceversion "+namespace+"/etcdoperator.v0.9.0  (cluster)\n") {
		t.Errorf("exit code %d: %s", code, stdout)
	}

	dir := t.TempDir()
	file := func(name string, u *unstructured.Unstructured) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(harness.AsJSON(t, u)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Run("files by what is there", func(t *testing.T) {
		got := checked(t, e, namespace,
			file("other.json", harness.Subscription(namespace, "second", harness.ForeignCatalog, "Manual")))
		if len(got) != 1 || !strings.HasPrefix(got[0], "Deny Subscription second: spec.source ") ||
			!strings.Contains(got[0], "OperatorPolicy "+cluster.PolicyNamespace+"/"+namespace) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a change of the policy of the cluster", func(t *testing.T) {
		stricter := policy.DeepCopy()
		if err := unstructured.SetNestedStringSlice(stricter.Object, []string{"etcdoperator.v0.9.0"}, "spec",
			"versions"); err != nil {
			t.Fatal(err)
		}
		got := checked(t, e, namespace, "--diff", file("old.json", policy), file("new.json", stricter))
		want := []string{
			"Allow ClusterServiceVersion etcdoperator.v0.9.0",
			fmt.Sprintf("Deny InstallPlan install-waits: %s is not allowed by OperatorPolicy %s/%s (bundle/version): allowed is etcdoperator.v0.9.0",
				harness.AllowedCSV, cluster.PolicyNamespace, namespace),
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("the command of the help finds plans", func(t *testing.T) {
		help, err := exec.CommandContext(t.Context(), harness.Opgate(t, e.Cluster), "check", "--help").Output()
		if err != nil {
			t.Fatal(err)
		}
		kinds := regexp.MustCompile(`kubectl get (\S+) \\\n`).FindSubmatch(help)
		if kinds == nil {
			t.Fatal("the help has no kubectl get")
		}
		got, err := e.Kubectl(t.Context(), cluster.Admin, "", "get", string(kinds[1]), "-n", namespace, "-o", "name")
		if err != nil || got.ExitCode != 0 {
			t.Fatalf("%v: %s", err, got.Stderr)
		}
		for _, want := range []string{"installplan.operators.coreos.com/install-waits",
			"subscription.operators.coreos.com/etcd", "clusterserviceversion.operators.coreos.com/"} {
			if !strings.Contains(got.Stdout, want) {
				t.Errorf("%s is not in %q", want, got.Stdout)
			}
		}
	})
	t.Run("the policy is removed", func(t *testing.T) {
		got := checked(t, e, namespace, "--diff", file("old.json", policy), os.DevNull)
		if !slices.Equal(got, []string{"Allow ClusterServiceVersion etcdoperator.v0.9.0"}) {
			t.Errorf("got %q", got)
		}
	})
}

// TestCheckClusterWithoutRights names the rights that are missing and the role that grants them, and an API server that
// does not answer.
func TestCheckClusterWithoutRights(t *testing.T) {
	e := harness.Shared(t)
	tenant, err := e.RESTConfig(cluster.Tenant)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config *rest.Config
		says   []string
	}{
		"no rights": {tenant, []string{"may not ", "list operatorpolicies.policy.open-cluster-management.io",
			"ClusterRole opgate-reader"}},
		"nothing listening": {&rest.Config{Host: "https://127.0.0.1:1"},
			[]string{"https://127.0.0.1:1", "cannot be reached"}},
	} {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := cluster.WriteKubeconfig(path, c.config); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, code := check(t, e, path)
		if code != 2 || stdout != "" || !strings.Contains(stderr, "check: nothing was judged: ") {
			t.Errorf("%s: exit code %d: %s%s", name, code, stdout, stderr)
		}
		for _, say := range c.says {
			if !strings.Contains(stderr, say) {
				t.Errorf("%s: %q is not in %q", name, say, stderr)
			}
		}
	}
}
