package loop

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
)

// update writes the terminal of docs/lockfile.md again; "make generate" draws it.
var update = flag.Bool("update", false, "write docs/pictures/lockfile.txt")

// planName is a name of OLM's.
var planName = regexp.MustCompile(`install-[a-z0-9]{5}\b`)

// lockfile plays testdata/olm/lockfile.txtar, which types the commands of docs/lockfile.md. "publish VERSION..." makes the
// catalog offer these versions, "show COMMAND" types a line into the terminal of the document, and "wrote RESOURCE..." has
// what Opgate has written since the last one.
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
	since := time.Now()
	commands["wrote"] = func(ts *testscript.TestScript, _ bool, want []string) {
		written, err := opgateWrites(e.Cluster, ts.Getenv("NS"), since)
		ts.Check(err)
		if since = time.Now(); !slices.Equal(written, want) {
			ts.Fatalf("Opgate writes %q, want %q", written, want)
		}
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

// opgateWrites returns the resources that Opgate has written in a namespace, and of its policy, since a time, by the API
// server's own log, but for events and Reports, which tell of it. Its records are in its own namespace.
func opgateWrites(c *cluster.Cluster, namespace string, since time.Time) (written []string, err error) {
	requests, err := c.OpgateRequests(since, time.Time{})
	for _, r := range requests {
		o := r.Object
		if !slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb) || r.Response.Code >= 400 ||
			o.Namespace != namespace && o.Name != namespace+".beacon" || o.Resource == "events" || o.Resource == "reports" {
			continue
		}
		if what := strings.TrimSuffix(o.Resource+"/"+o.Subresource, "/"); !slices.Contains(written, what) {
			written = append(written, what)
		}
	}
	slices.Sort(written)
	return written, err
}
