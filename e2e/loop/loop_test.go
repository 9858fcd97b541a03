package loop

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestLoop plays the scripts of testdata, whose language scripttest documents, and those of shared, against an API server
// with Opgate's background loop. OLM does not run: a script writes what OLM would. TestReconciler of
// controller/operatorpolicy plays those that need no API server, TestLoopOLM has a real OLM.
func TestLoop(t *testing.T) {
	t.Parallel()
	e := startLoop(t, harness.Vacant(t))
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("scripts %v, %v", scripts, err)
	}
	testscript.RunT(harness.Terse{T: t}, testscript.Params{
		Files:           slices.Concat(scripts, shared),
		ContinueOnError: true,
		Setup:           e.Setup,
		Cmds:            e.Commands(),
	})
}

// shared are scripts of TestReconciler: what they write needs rights that no other script uses, or an API server, or they
// play scenarios that the gate could make another end of.
var shared = []string{
	"../../controller/operatorpolicy/testdata/csv-failing.txtar",
	"../../controller/operatorpolicy/testdata/plan-shared.txtar",
	"../../controller/operatorpolicy/testdata/plan-two-operators.txtar",
	"../../controller/operatorpolicy/testdata/config-large.txtar", // reads a field by a patch
	"../../controller/operatorpolicy/testdata/plan-account.txtar", // repeats a plan
	"../../controller/operatorpolicy/testdata/plan-stale.txtar",   // deletes one
}

// TestLoopOLMv1 plays the scripts of testdata/olmv1. OLM v1's definitions are installed while Opgate runs, which does
// not ask for their objects before.
func TestLoopOLMv1(t *testing.T) {
	t.Parallel()
	e := startLoop(t, harness.Vacant(t))
	if err := e.InstallOLMv1(t.Context()); err != nil {
		t.Fatal(err)
	}
	testscript.RunT(harness.Terse{T: t}, testscript.Params{
		Dir:             "testdata/olmv1",
		ContinueOnError: true,
		Setup:           e.Setup,
		Cmds:            e.Commands(),
	})
}

// startLoop starts Opgate in an environment without it. Tests take turns in that of the package (harness.Vacant).
// PackageManifests are a plain kind here: the real server of them takes what it states from catalogs, and cannot be
// made to say anything else.
func startLoop(t testing.TB, in *harness.Env) *harness.LoopEnv {
	t.Helper()
	e := &harness.LoopEnv{Env: in}
	harness.Kubectl(t, e.Cluster, cluster.Admin, harness.PackageManifests, "apply", "-f", "-")
	e.StartGate(t, cluster.GateOptions{Loop: true, SecureMetrics: true})
	e.Scraper = e.NewScraper(t, "prometheus", true)
	harness.Eventually(t, "see that Prometheus may read metrics", func(ctx context.Context) error {
		code, body, err := e.Scrape(ctx, e.Scraper)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("metrics: %d %s", code, body)
		}
		return err
	})
	e.Connect(t)
	return e
}
