package gate

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestSchemaOfPolicies writes policies that the rules in CEL of the definition do not admit: the API server refuses
// them before the webhook. One that is stored all the same, as by an earlier release, holds what it governs, its labels
// can be edited, and a corrected one is in force.
func TestSchemaOfPolicies(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	create := []string{"create", "--dry-run=server", "-f", "-"}
	for field, c := range map[string]struct{ value, says string }{
		"name":            {"Etcd.Operator", `"Etcd.Operator": a lowercase RFC 1123 label must consist of`},
		"namespace":       {strings.Repeat("a", 64), "must be no more than 63 characters"},
		"source":          {"community ", `"community ": must not start or end with white space`},
		"sourceNamespace": {"\u0441lm", "must be ASCII: type the name instead of copying it"},
		"startingCSV":     {"etcd/v1", `"etcd/v1": a lowercase RFC 1123 subdomain must consist of`},
		"channel":         {"stable ", `"stable ": must not start or end with white space`},
	} {
		wrong, templated := harness.OperatorPolicy(namespace), harness.OperatorPolicy(namespace)
		harness.WithField(wrong, c.value, "spec", "subscription", field)
		harness.WantRefused(t, e.Cluster, cluster.Admin, harness.AsJSON(t, wrong), create,
			"is invalid: spec.subscription."+field+": Invalid value: ", c.says)
		harness.WithField(templated, `{{ "a" }}`, "spec", "subscription", field)
		if result, err := e.Kubectl(t.Context(), cluster.Admin, harness.AsJSON(t, templated), create...); err != nil ||
			strings.Contains(result.Stderr, "is invalid") {
			t.Errorf("%s with template text: %v %s", field, err, result.Stderr)
		}
	}

	policy := e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	wrong := policy.DeepCopy()
	harness.WithField(wrong, "etcd/v1", "spec", "subscription", "startingCSV")
	if err := e.StorePolicy(t.Context(), wrong); err != nil {
		t.Fatal(err)
	}
	sub := harness.AsJSON(t, harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Manual"))
	harness.Eventually(t, "it is held", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, sub, create...)
		if err == nil && (!strings.Contains(result.Stderr, "(policy/unreadable)") ||
			!strings.Contains(result.Stderr, "spec.subscription.startingCSV is not valid")) {
			err = fmt.Errorf("kubectl wrote %s", result.Stderr)
		}
		return err
	})
	for _, edit := range [][]string{
		{"label", "operatorpolicy", "-n", policy.GetNamespace(), policy.GetName(), "edited=yes"},
		{"patch", "operatorpolicy", "-n", policy.GetNamespace(), policy.GetName(), "--type=merge", "--patch",
			`{"spec":{"subscription":{"startingCSV":null}}}`},
	} {
		if result, err := e.Kubectl(t.Context(), cluster.Admin, "", edit...); err != nil || result.ExitCode != 0 {
			t.Errorf("kubectl %s: %v %s", edit[0], err, result.Stderr)
		}
	}
	harness.Eventually(t, "it is in force", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, sub, create...)
		if err == nil && result.ExitCode != 0 {
			err = fmt.Errorf("kubectl wrote %s", result.Stderr)
		}
		return err
	})
}
