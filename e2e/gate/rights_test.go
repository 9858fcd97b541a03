package gate

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestG25ChartRights runs Opgate with the rights of the chart's defaults and no others: it becomes ready, requests
// nothing that they do not allow, and warns of a policy that needs more with the value to set.
func TestG25ChartRights(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, cluster.Options{Audit: true, ChartRights: true, Log: os.Stderr})
	e.StartGate(t, cluster.GateOptions{Loop: true})
	namespace := e.NewNamespace(t)
	policy := harness.OperatorPolicy(namespace)
	if err := unstructured.SetNestedField(policy.Object, "Delete", "spec", "removalBehavior",
		"customResourceDefinitions"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "warn of the missing right", func(ctx context.Context) error {
		out, err := e.Kubectl(ctx, cluster.Admin, harness.AsJSON(t, policy), "create", "-f", "-")
		if err != nil || !strings.Contains(out.Stderr, "chart value rights.definitions grants it") {
			return fmt.Errorf("kubectl: %w: %s", err, out.Stderr)
		}
		return nil
	})
	requests, err := e.OpgateRequests(time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		if r.Response.Code == http.StatusForbidden {
			t.Errorf("opgate may not %s %s", r.Verb, r.URI)
		}
	}
}
