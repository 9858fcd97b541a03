package gate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// withBackstop makes TestScenarios play each scenario with its policies held by the API server too. It takes some seconds for each, until
// the API server judges by them.
var withBackstop = flag.Bool("backstop", false, "play scenarios with the backstop")

// probeNamespace has a plan whose refusal names the table in force.
const probeNamespace = "backstop-probe"

// tables is the number of tables that were written.
var tables int

// backstopApplies reports whether the backstop has a part in a scenario: without policies, and for other kinds, it has none.
func backstopApplies(s *scenario.Scenario) bool {
	kind, _, _ := strings.Cut(s.Name, "-")
	return len(s.Policies) > 0 && (kind == "plan" || kind == "csv" || kind == "subscription")
}

// holdByServer makes the API server hold policies, and no others.
func holdByServer(t *testing.T, e *harness.Env, policies ...*unstructured.Unstructured) {
	t.Helper()
	if tables == 0 {
		e.EnsureNamespaces(t, []*unstructured.Unstructured{harness.InstallPlan(probeNamespace, "probe", harness.ForbiddenVersion)})
		if _, err := e.Create(t.Context(), harness.InstallPlan(probeNamespace, "probe", harness.ForbiddenVersion)); err != nil {
			t.Fatal(err)
		}
	}
	tables++
	marker := fmt.Sprintf("etcdoperator.v0.0.%d", tables)
	probe := harness.OperatorPolicy(probeNamespace)
	probe.Object["spec"].(map[string]any)["versions"] = []any{marker}
	harness.Kubectl(t, e.Cluster, cluster.Admin, compiled(t, e, append(policies, probe)...), "apply", "--server-side", "--force-conflicts", "-f", "-")
	harness.Eventually(t, "the API server holds the policies", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, "", "patch", "installplan", "-n", probeNamespace, "probe", "--type=merge", "--patch", harness.Approval,
			"--dry-run=server")
		if err == nil && !strings.Contains(result.Stderr, "allowed is "+marker+";") {
			err = errors.New(result.Stderr)
		}
		return err
	})
}
