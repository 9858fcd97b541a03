package loop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// wantSameDiff compares a plan by opgate diff, on the cluster and from files.
func wantSameDiff(t *testing.T, e *harness.OLMEnv, plan *unstructured.Unstructured, digest string) {
	t.Helper()
	dump := strings.Join([]string{
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get",
			"installplans,clusterserviceversions,subscriptions.operators.coreos.com", "-n", plan.GetNamespace(), "-o",
			"yaml"),
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", "configmaps", "-n", cluster.OLMNamespace, "-l",
			"olm.managed=true", "-o", "yaml"),
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get",
			"customresourcedefinitions,clusterroles,clusterrolebindings,priorityclasses", "-o", "yaml"),
	}, "\n---\n")
	name := plan.GetNamespace() + "/" + plan.GetName()
	var texts []string
	for _, args := range [][]string{{"diff", name}, {"diff", name, "-f", "-"}} {
		got, err := e.RunOpgate(t.Context(), cluster.Command{Args: args, Stdin: dump})
		if err != nil {
			t.Fatal(err)
		}
		if got.ExitCode != 1 || !strings.Contains(got.Stdout, digest) ||
			!strings.Contains(got.Stdout, "3 differences") {
			t.Errorf("opgate %s ends with exit code %d: %s%s\nwant 3 differences and digest %s", args, got.ExitCode,
				got.Stdout, got.Stderr, digest)
		}
		texts = append(texts, got.Stdout)
	}
	if diff := cmp.Diff(texts[0], texts[1]); diff != "" {
		t.Errorf("the cluster and its files differ: (-cluster +files)\n%s", diff)
	}
}

// wantShown looks at a held upgrade with the plugin, and in the Report of its namespace.
func wantShown(t *testing.T, e *harness.OLMEnv, plan, p *unstructured.Unstructured, csv, digest string) {
	t.Helper()
	namespace, policy := plan.GetNamespace(), "OperatorPolicy policies/"+p.GetName()
	for _, c := range []struct {
		args          []string
		exitCode      int
		wantCondition []string
	}{
		{[]string{"pending", "-n", namespace, "-o", "wide"}, 0,
			[]string{plan.GetName(), csv + ".v0.9.4", "Hold", "bundle/consent", policy}},
		{[]string{"why", "installplan", namespace + "/" + plan.GetName()}, 1,
			[]string{"Hold", csv + ".v0.9.4", "bundle/consent", policy, digest}},
	} {
		got, err := e.RunPlugin(t.Context(), "", cluster.Command{Args: append([]string{"opgate"}, c.args...)})
		if err != nil {
			t.Fatal(err)
		}
		if got.ExitCode != c.exitCode {
			t.Errorf("kubectl opgate %s ends with exit code %d, want %d: %s", c.args, got.ExitCode, c.exitCode,
				got.Stderr)
		}
		for _, text := range c.wantCondition {
			if !strings.Contains(got.Stdout, text) {
				t.Errorf("kubectl opgate %s prints\n%s\nwant %q in it", c.args, got.Stdout, text)
			}
		}
	}
	e.Eventually(t, "report "+plan.GetName(), func(ctx context.Context) error {
		r, err := reportIn(ctx, e.Env, namespace)
		if err != nil {
			return err
		}
		held := slices.ContainsFunc(r.Results, func(result reports.ReportResult) bool {
			return result.Rule == "bundle/consent" && result.Policy == policy &&
				strings.Contains(result.Description, digest)
		})
		if got, want := sayings(r), checked(t, e.Env, namespace); !held || !slices.Equal(got, want) {
			return fmt.Errorf("the Report says\n%+v\nopgate check --live says\n%+v", got, want)
		}
		return nil
	})
}
