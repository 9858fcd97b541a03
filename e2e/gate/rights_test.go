package gate

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestG25ChartRights runs Opgate with the rights of the chart's defaults and no others: it becomes ready, requests
// nothing that they do not allow, and warns of a policy that needs more with the value to set.
func TestG25ChartRights(t *testing.T) {
	t.Parallel()
	e := harness.Vacant(t)
	withChartRights(t, e)
	from := time.Now()
	e.StartGate(t, cluster.GateOptions{Loop: true, ChartRights: true})
	namespace := e.NewNamespace(t)
	policy := harness.WithField(harness.OperatorPolicy(namespace), "Delete", "spec", "removalBehavior",
		"customResourceDefinitions")
	t.Cleanup(func() { e.Remove(t, policy) })
	harness.Eventually(t, "warn of the missing right", func(ctx context.Context) error {
		out, err := e.Kubectl(ctx, cluster.Admin, harness.AsJSON(t, policy), "create", "--dry-run=server", "-f", "-")
		if err != nil || !strings.Contains(out.Stderr, "chart value rights.definitions grants it") {
			return fmt.Errorf("kubectl: %w: %s", err, out.Stderr)
		}
		return nil
	})
	requests, err := e.OpgateRequests(from, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		if r.Response.Code == http.StatusForbidden {
			t.Errorf("opgate may not %s %s", r.Verb, r.URI)
		}
	}
}

// withChartRights takes the rights from Opgate that tests have beyond the chart's defaults, until the end of the test.
func withChartRights(t *testing.T, e *harness.Env) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	bind := func(u *unstructured.Unstructured, subjects any) {
		t.Helper()
		patch := []byte(harness.Normal(map[string]any{"subjects": subjects}))
		if _, err := e.Clients[cluster.Admin].Of(u).Patch(ctx, u.GetName(), types.MergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	}
	for _, role := range cluster.RolesBeyondChart {
		bound := e.Get(t, clusterRoleBindings, "", role)
		t.Cleanup(func() { bind(bound, bound.Object["subjects"]) })
		bind(bound, []any{})
	}
	harness.Eventually(t, "wait until the rights are gone", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, "", "auth", "can-i", "delete", "customresourcedefinitions",
			"--as="+cluster.OpgateUserName)
		if err == nil && strings.TrimSpace(result.Stdout) != "no" {
			err = fmt.Errorf("may Opgate delete definitions: %s", result.Stdout)
		}
		return err
	})
}

var clusterRoleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1",
	Resource: "clusterrolebindings"}
