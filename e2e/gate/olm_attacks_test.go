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

// attackE2 deletes the installed ClusterServiceVersion, so that the upgrade that is held passes as a first installation
// (threat O54). The tenant may delete ClusterServiceVersions, as OLM's role for editors lets it.
func attackE2(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	e.OperatorGroup(t, namespace)
	lets(t, e, namespace, "delete-csv", []string{csvResource}, "delete")
	p := e.Put(t, harness.WithField(harness.OLMPolicy(namespace, "None"), "etcdoperator.v0.9.0", "spec", "subscription",
		"startingCSV"))
	e.WaitForCSV(t, namespace, "etcdoperator.v0.9.0")
	// Otherwise the loop would delete the plan, since it is not what the policy starts with.
	e.Edit(t, p, `{"spec":{"subscription":{"startingCSV":null}}}`)
	upgrade := e.WaitForPlan(t, namespace, "etcdoperator.v0.9.2")
	waitForRecord(t, e, namespace, "etcdoperator.v0.9.0")
	e.WantApprovalRefused(t, cluster.Tenant, upgrade, "the upgrade of etcdoperator.v0.9.0 to etcdoperator.v0.9.2",
		"(bundle/upgrade)")
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "csv", "-n", namespace, "etcdoperator.v0.9.0")
	e.SyncGate(t)
	e.WantApprovalRefused(t, cluster.Tenant, upgrade, "the upgrade of etcdoperator.v0.9.0 to etcdoperator.v0.9.2",
		"(bundle/upgrade)")
}

// attackP2 deletes the OperatorGroup with the account that OLM installs as, and what shows that account, and creates it
// without (threat O55). The tenant may delete plans, and create and delete OperatorGroups.
func attackP2(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	attenuatedGroup(t, e, namespace)
	grantWeakAccount(t, e, namespace)
	lets(t, e, namespace, "groups", []string{"operatorgroups.operators.coreos.com",
		"installplans.operators.coreos.com"}, "create", "delete", "deletecollection", "list")
	p := e.Put(t, harness.OLMPolicy(namespace, "Automatic", "etcdoperator.v0.9.4"))
	e.WaitForCSV(t, namespace, "etcdoperator.v0.9.4")
	waitForRecord(t, e, namespace, `"serviceAccountName":"weak"`)
	// A policy that only informs creates no group by itself, so that it is the tenant's that counts.
	e.Edit(t, p, `{"spec":{"remediationAction":"inform"}}`)
	constraint := e.Put(t, constraintOf("all-"+namespace, only(namespace, "packageName != 'none'"),
		"no operator is forbidden"))
	e.Sync(t)
	group := func(spec string) string {
		return `{"apiVersion":"operators.coreos.com/v1","kind":"OperatorGroup","metadata":{"name":"` + namespace +
			`","namespace":"` + namespace + `"},"spec":` + spec + `}`
	}
	without := group(`{"targetNamespaces":["` + namespace + `"]}`)
	create := []string{"create", "-f", "-"}
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "operatorgroup", "-n", namespace, namespace)
	e.SyncGate(t)
	harness.WantRefused(t, e.Cluster, cluster.Tenant, without, create, "allowed is weak",
		"(operatorgroup/service-account)")
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "installplan", "-n", namespace, "--all")
	e.SyncGate(t)
	harness.WantRefused(t, e.Cluster, cluster.Tenant, without, create, "allowed is weak",
		"(operatorgroup/service-account)", constraint.GetName())

	// Nor does Opgate create one without the account, where a policy names no group.
	e.Edit(t, p, `{"spec":{"remediationAction":"enforce"}}`)
	waitForCondition(t, e, p, "Compliant True")
	groups := harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", "operatorgroup", "-n", namespace, "-o",
		"jsonpath={.items[*].spec}")
	if want := `{"serviceAccountName":"weak","targetNamespaces":["` + namespace +
		`"],"upgradeStrategy":"Default"}`; groups != want {
		t.Errorf("the OperatorGroup in place of the deleted one is %s, want %s", groups, want)
	}
}

// attackE5 deletes the ClusterServiceVersion and the OperatorGroup, and creates the latter for all namespaces (threat
// O55). The tenant may delete ClusterServiceVersions, and create and delete OperatorGroups.
func attackE5(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	e.OperatorGroup(t, namespace)
	lets(t, e, namespace, "groups", []string{"operatorgroups.operators.coreos.com", csvResource}, "create", "delete")
	p := e.Put(t, harness.OLMPolicy(namespace, "Automatic", "etcdoperator.v0.9.4"))
	e.WaitForCSV(t, namespace, "etcdoperator.v0.9.4")
	waitForRecord(t, e, namespace, `"targetNamespaces":["`+namespace+`"]`)
	e.Edit(t, p, `{"spec":{"remediationAction":"inform"}}`)
	e.Put(t, constraintOf("all-"+namespace, only(namespace, "packageName != 'none'"), "no operator is forbidden"))
	e.Sync(t)
	forAll := `{"apiVersion":"operators.coreos.com/v1","kind":"OperatorGroup","metadata":{"name":"all","namespace":"` +
		namespace + `"},"spec":{}}`
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "operatorgroup", "-n", namespace, namespace)
	e.SyncGate(t)
	harness.WantRefused(t, e.Cluster, cluster.Tenant, forAll, []string{"create", "-f", "-"}, "allowed is "+namespace,
		"(operatorgroup/scope)")
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "csv", "-n", namespace, "etcdoperator.v0.9.4")
	e.SyncGate(t)
	harness.WantRefused(t, e.Cluster, cluster.Tenant, forAll, []string{"create", "-f", "-"}, "allowed is "+namespace,
		"(operatorgroup/scope)")
}

// attackK1 has a ClusterServiceVersion certify itself to a Constraint (threat O56). The tenant may create
// ClusterServiceVersions.
func attackK1(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	lets(t, e, namespace, "create-csv", []string{csvResource}, "create")
	e.Put(t, constraintOf("certified-"+namespace, only(namespace, isCertified),
		"only certified operators are installed here"))
	e.Sync(t)
	csv := etcdCSV(namespace, "0.9.2")
	harness.WantRefused(t, e.Cluster, cluster.Tenant, harness.AsJSON(t, csv), []string{"create", "-f", "-"},
		"only certified operators", "(bundle/constraint)")
	properties := csv.GetAnnotations()["operatorframework.io/properties"]
	csv.SetAnnotations(map[string]string{"operatorframework.io/properties": strings.Replace(properties,
		`"properties":[`, `"properties":[{"type":"certified","value":true},`, 1)})
	harness.WantRefused(t, e.Cluster, cluster.Tenant, harness.AsJSON(t, csv), []string{"create", "-f", "-"},
		"states of itself", "(bundle/constraint)")
}

// attackI1 reads, by templates of an OperatorPolicy, what only Opgate may read (threats O43, O47). The tenant may write
// OperatorPolicies in one namespace.
func attackI1(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	lets(t, e, namespace, "policies", []string{"operatorpolicies.policy.open-cluster-management.io"}, "create", "get")
	attack := func(name, template string) *unstructured.Unstructured {
		p := harness.WithField(harness.OLMPolicy(namespace, "Automatic"), []any{template}, "spec", "versions")
		p.SetNamespace(namespace)
		p.SetName(name)
		return p
	}
	for name, template := range map[string]string{
		"secret": `{{ (lookup "v1" "Secret" "opgate-system" "opgate-ca").data }}`,
		"record": `{{ fromConfigMap "opgate-system" "opgate-installed-shop" "record" }}`,
		"pods":   `{{ (lookup "v1" "Pod" "` + cluster.OLMNamespace + `" "").items }}`,
	} {
		harness.WantRefused(t, e.Cluster, cluster.Tenant, harness.AsJSON(t, attack(name, template)),
			[]string{"create", "-f", "-"}, "(operatorpolicy/lookup)")
	}

	// There is no such function, which the status states and no more.
	key := attack("key", `{{ fromSecret "opgate-system" "opgate-marks" "key" }}`)
	harness.Kubectl(t, e.Cluster, cluster.Tenant, harness.AsJSON(t, key), "create", "-f", "-")
	t.Cleanup(func() { e.Remove(t, key) })
	e.Eventually(t, "see the template refused", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Tenant, "", "get", "operatorpolicy", "-n", namespace, "key", "-o",
			"jsonpath={.status}")
		if err != nil || !strings.Contains(result.Stdout, "cannot look up Secrets") {
			return fmt.Errorf("the status is %s (%w)", result.Stdout, err)
		}
		return nil
	})
}
