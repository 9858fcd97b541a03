package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/rules/state"
)

// lets grants the tenant verbs on resources in a namespace, and waits until they count.
func lets(t *testing.T, e *harness.OLMEnv, namespace, name string, resources []string, verbs ...string) {
	t.Helper()
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "role", "-n", namespace, name,
		"--verb="+strings.Join(verbs, ","), "--resource="+strings.Join(resources, ","))
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "rolebinding", "-n", namespace, name, "--role="+name,
		"--user="+string(cluster.Tenant))
	e.Eventually(t, "wait for the permission", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Tenant, "", "auth", "can-i", verbs[0], resources[0], "-n", namespace)
		if err != nil || result.ExitCode != 0 {
			return fmt.Errorf("%s (%w)", result.Stdout+result.Stderr, err)
		}
		return nil
	})
}

const csvResource = "clusterserviceversions.operators.coreos.com"

// waitForRecord waits until the record of a namespace states something, and the gate has read it.
func waitForRecord(t *testing.T, e *harness.OLMEnv, namespace, says string) {
	t.Helper()
	e.Eventually(t, "see "+says+" recorded", func(ctx context.Context) error {
		record, err := find(ctx, e.Env, harness.Named("ConfigMap", cluster.OpgateNamespace,
			state.RecordName(namespace)))
		if err != nil || record == nil {
			return fmt.Errorf("the record is %v: %w", record, err)
		}
		if text, _, _ := unstructured.NestedString(record.Object, "data", state.RecordKey); !strings.Contains(text,
			says) {
			return fmt.Errorf("the record is %s", text)
		}
		return nil
	})
	e.Sync(t)
}

// attackP1 plants, before a policy exists, a completed plan with contents of the tenant's choice (threat O53). The
// tenant may write plans, their status, and the ClusterServiceVersion.
func attackP1(t *testing.T, e *harness.OLMEnv) {
	const name = "etcdoperator.v0.9.2"
	namespace := e.NewNamespace(t)
	e.OperatorGroup(t, namespace)
	lets(t, e, namespace, "patch-csv", []string{csvResource}, "patch", "get")
	e.Subscribe(t, namespace, "etcd", name, "Manual")
	e.Approve(t, cluster.Tenant, e.WaitForPlan(t, namespace, name))
	e.WaitForCSV(t, namespace, name)
	const path = "/spec/install/spec/deployments/0/spec/template/spec/containers/0/image"
	exchange := func(image string) []string {
		return []string{"patch", "csv", "-n", namespace, name, "--type=json", "--patch",
			`[{"op":"replace","path":"` + path + `","value":"` + image + `"}]`}
	}
	planted := e.CreateAs(t, cluster.Tenant, harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: InstallPlan
metadata: {name: planted, namespace: %s}
spec: {approval: Manual, approved: true, generation: 9, clusterServiceVersionNames: [%s]}
`, namespace, name))
	evil := harness.Kubectl(t, e.Cluster, cluster.Tenant, "",
		append(exchange("evil.example/planted:1"), "--dry-run=server", "-o", "json")...)
	status := map[string]any{"status": map[string]any{"phase": "Complete", "catalogSources": []any{},
		"plan": []any{map[string]any{
			"resolving": name, "status": "Created", "resource": map[string]any{"group": "operators.coreos.com",
				"version": "v1alpha1",
				"kind":    "ClusterServiceVersion", "name": name, "sourceName": "", "sourceNamespace": "", "manifest": evil},
		}}}}
	patch, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	e.Patch(t, cluster.Tenant, planted, string(patch), "status")

	p := e.Put(t, harness.OLMPolicy(namespace, "Automatic", name))
	waitForCondition(t, e, p, "Compliant True")
	waitForRecord(t, e, namespace, name)
	harness.WantRefused(t, e.Cluster, cluster.Tenant, "", exchange("evil.example/other:1"), "(csv/frozen)")
	harness.WantRefused(t, e.Cluster, cluster.Tenant, "", exchange("evil.example/planted:1"), "(csv/frozen)")
}
