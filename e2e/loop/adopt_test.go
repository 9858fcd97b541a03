package loop

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
)

// TestAdopt adopts an operator that is installed: the policies allow exactly that, and applying them writes what the
// command has printed, by the API server's own log. TestLoopOLM has what opgate suggest adds.
func TestAdopt(t *testing.T) {
	t.Parallel()
	e := startLoop(t, harness.Vacant(t))
	namespace := e.NewNamespace(t)
	e.Put(t, harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: %s
  namespace: %s
  annotations: {operatorframework.io/properties: '%s'}
spec:
  displayName: etcd
  install: {strategy: deployment, spec: {deployments: []}}
`, harness.AllowedCSV, namespace,
		`{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"`+harness.AllowedVersion+`"}}]}`))
	subscription := harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Automatic")
	subscription.Object["status"] = map[string]any{"lastUpdated": "2026-01-01T00:00:00Z",
		"currentCSV": harness.AllowedCSV, "installedCSV": harness.AllowedCSV}
	e.Put(t, subscription)
	dir := filepath.Join(t.TempDir(), "policies")
	adopt := func(args ...string) cluster.Result {
		t.Helper()
		got, err := e.RunPlugin(t.Context(), "",
			cluster.Command{Args: append([]string{"opgate", "adopt", "-n", namespace}, args...)})
		if err != nil || got.ExitCode != 0 {
			t.Fatalf("%q: %v, exit code %d: %s%s", args, err, got.ExitCode, got.Stdout, got.Stderr)
		}
		return got
	}
	apply := func() time.Time {
		t.Helper()
		since := time.Now()
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "apply", "-k", dir)
		return since
	}

	got := adopt("-o", dir)
	harness.WantTexts(t, got.Stderr, "writes status, and nothing of OLM's")
	t.Cleanup(func() {
		// only tidies up
		_, _ = e.Kubectl(context.WithoutCancel(t.Context()), cluster.Admin, "", "delete", "-k", dir, "--ignore-not-found")
	})
	since := apply()
	waitObserved(t, e, namespace+".etcd", 1)
	if writes := opgateWrites(t, e, namespace, since); !slices.Equal(writes, []string{"operatorpolicies/status"}) {
		t.Errorf("informing policies write %q", writes)
	}
	wantAllowed(t, e, namespace)

	got = adopt("-o", dir, "--force", "--remediation-action", "enforce")
	harness.WantTexts(t, got.Stderr, "writes spec.installPlanApproval: Manual, with annotation opgate.io/requested-approval")
	since = apply()
	waitObserved(t, e, namespace+".etcd", 2)
	wantAllowed(t, e, namespace)
	harness.Eventually(t, "see that OLM waits for approval", func(context.Context) error {
		stored := e.Env.Get(t, harness.Subscriptions, namespace, "etcd")
		approval, _, _ := unstructured.NestedString(stored.Object, "spec", "installPlanApproval")
		if requested := stored.GetAnnotations()["opgate.io/requested-approval"]; approval != "Manual" || requested != "Automatic" {
			return fmt.Errorf("installPlanApproval is %q, requested %q", approval, requested)
		}
		return nil
	})
	e.Put(t, harness.InstallPlan(namespace, "install-next", harness.ForbiddenVersion))
	e.Sync(t)
	if writes := opgateWrites(t, e, namespace, since); !slices.Equal(writes, []string{"operatorpolicies/status", "subscriptions"}) {
		t.Errorf("enforced policies write %q", writes)
	}
	harness.WantField(t, e.Env.Get(t, harness.InstallPlans, namespace, "install-next"), "false", "spec", "approved")
}

// update writes the terminal of docs/lockfile.md again; "make generate" draws it.
var update = flag.Bool("update", false, "write docs/pictures/lockfile.txt")

// planName is a name of OLM's.
var planName = regexp.MustCompile(`install-[a-z0-9]{5}\b`)

// lockfile plays testdata/olm/lockfile.txtar, which types the commands of docs/lockfile.md. "publish VERSION..." makes the
// catalog offer these versions, and "show COMMAND" types a line into the terminal of the document.
func lockfile(t *testing.T, e *harness.OLMEnv) {
	beacon := olm.Package{Name: "beacon", CSV: "beaconoperator", Versions: []string{"1.0.0"}}
	catalog, err := e.OLM.AddCatalog(t.Context(), "beacons", beacon)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.RunPlugin(t.Context(), "", cluster.Command{Args: []string{"opgate", "version"}}); err != nil {
		t.Fatal(err) // it installs the plugin
	}
	player := &harness.LoopEnv{Env: e.Env}
	player.Connect(t)
	player.Poll = func(ctx context.Context, check func(context.Context) (bool, error)) error {
		return harness.Poll(ctx, harness.SettleTimeout, check) // OLM installs
	}
	commands := player.Commands()
	commands["publish"] = func(ts *testscript.TestScript, _ bool, versions []string) {
		beacon.Versions = versions
		ts.Check(catalog.Publish(t.Context(), beacon))
	}
	var terminal strings.Builder
	commands["show"] = func(ts *testscript.TestScript, _ bool, line []string) {
		named := strings.NewReplacer(ts.Getenv("NS"), "shop", ts.Getenv("POLICIES"), "policies")
		ts.Check(ts.Exec("bash", "-o", "pipefail", "-c", line[0]))
		printed := "$ " + line[0] + "\n" + ts.ReadFile("stderr") + ts.ReadFile("stdout")
		terminal.WriteString(planName.ReplaceAllString(named.Replace(printed), "install-x7k2p"))
	}
	t.Cleanup(func() { // when the script has ended, which runs beside others
		const file = root + "/docs/pictures/lockfile.txt"
		if *update && !t.Failed() {
			if err := os.WriteFile(file, []byte(terminal.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(document(t, "docs/pictures/lockfile.txt"), terminal.String()); diff != "" && !t.Failed() {
			t.Errorf("%s is not what is typed and printed now; run the test with -update (-file +now):\n%s", file, diff)
		}
	})
	testscript.RunT(harness.Terse{T: t}, testscript.Params{
		Dir:  "testdata/olm",
		Cmds: commands,
		Setup: func(script *testscript.Env) error {
			script.Setenv("KUBECONFIG", e.Kubeconfig())
			script.Setenv("PATH", filepath.Dir(harness.Opgate(t, e.Cluster))+":"+searchPath(e.Cluster))
			return player.Setup(script)
		},
	})
}

// waitObserved waits until the loop has looked at a generation of a policy.
func waitObserved(t *testing.T, e *harness.LoopEnv, policy string, generation int64) {
	t.Helper()
	harness.Eventually(t, "see the policy observed", func(context.Context) error {
		stored := e.Env.Get(t, harness.OperatorPolicies, cluster.PolicyNamespace, policy)
		observed, _, _ := unstructured.NestedInt64(stored.Object, "status", "observedGeneration")
		if observed < generation {
			return fmt.Errorf("generation %d is observed, want %d", observed, generation)
		}
		return nil
	})
}

// opgateWrites returns the resources that Opgate has written in a namespace, and of its policy, since a time. Its own records
// are in its own namespace.
func opgateWrites(t *testing.T, e *harness.LoopEnv, namespace string, since time.Time) (written []string) {
	t.Helper()
	requests, err := e.OpgateRequests(since, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		o := r.Object
		if !slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb) || r.Response.Code >= 400 ||
			o.Namespace != namespace && o.Name != namespace+".etcd" || o.Resource == "events" {
			continue
		}
		if what := strings.TrimSuffix(o.Resource+"/"+o.Subresource, "/"); !slices.Contains(written, what) {
			written = append(written, what)
		}
	}
	slices.Sort(written)
	return written
}

// wantAllowed wants that opgate check allows all that is installed in a namespace.
func wantAllowed(t *testing.T, e *harness.LoopEnv, namespace string) {
	t.Helper()
	got, err := e.RunPlugin(t.Context(), "", cluster.Command{Args: []string{"opgate", "check", "--live", "-o", "json"}})
	if err != nil {
		t.Fatal(err)
	}
	var found struct {
		Items []struct{ Namespace, Kind, Name, Decision string }
	}
	if err := json.Unmarshal([]byte(got.Stdout), &found); err != nil {
		t.Fatalf("%v: %s%s", err, got.Stdout, got.Stderr)
	}
	judged := 0
	for _, item := range found.Items {
		if item.Namespace == namespace {
			judged++
			if item.Decision != "Allow" {
				t.Errorf("%s of %s %s, want Allow", item.Decision, item.Kind, item.Name)
			}
		}
	}
	if judged == 0 {
		t.Errorf("nothing of namespace %s is judged: %s", namespace, got.Stdout)
	}
}
