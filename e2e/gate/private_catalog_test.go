package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// privateStep is one step of a user of a namespace who becomes cluster admin by a catalog of their own
// (operator-framework/operator-lifecycle-manager#3820).
type privateStep struct {
	name string
	// on and rule are the Constraint that stops it, in a namespace of which the name is inserted; message is what the
	// refusal has.
	on, rule, message string
	do                func(t *testing.T, e *harness.Env, namespace string) (user cluster.User, stdin string,
		args []string)
}

// privateSteps are those that something can stop, in order. Before them the user writes the bundle into a ConfigMap.
var privateSteps = []privateStep{
	{
		name: "CatalogSource", on: "catalogSource",
		rule:    "namespaceObject.metadata.name != '%s'",
		message: "(catalogsource/constraint)",
		do: func(t *testing.T, _ *harness.Env, namespace string) (cluster.User, string, []string) {
			return cluster.Tenant, harness.AsJSON(t, privateCatalog(namespace)), []string{"create", "-f", "-"}
		},
	},
	{
		name: "OperatorGroup", on: "operatorGroup",
		rule:    "namespaceObject.metadata.name != '%s' || group.serviceAccountName != ''",
		message: "(operatorgroup/constraint)",
		do: func(t *testing.T, _ *harness.Env, namespace string) (cluster.User, string, []string) {
			return cluster.Tenant, harness.AsJSON(t, harness.Object(`
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: private, namespace: %[1]s}
spec: {targetNamespaces: [%[1]s]}
`, namespace)), []string{"create", "-f", "-"}
		},
	},
	{
		name: "Subscription", on: "bundle",
		rule:    "namespaceObject.metadata.name != '%s' || catalog.namespace == 'olm'",
		message: "(subscription/constraint)",
		do: func(t *testing.T, _ *harness.Env, namespace string) (cluster.User, string, []string) {
			return cluster.Tenant, harness.AsJSON(t, harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: private, namespace: %[1]s}
spec: {name: rootkit, channel: stable, source: private, sourceNamespace: %[1]s, installPlanApproval: Manual}
`, namespace)), []string{"create", "-f", "-"}
		},
	},
	{
		name: "InstallPlan", on: "bundle",
		rule:    "namespaceObject.metadata.name != '%s' || clusterPermissions.all(r, !('*' in r.verbs))",
		message: "(bundle/constraint)",
		do: func(t *testing.T, e *harness.Env, namespace string) (cluster.User, string, []string) {
			e.Put(t, privatePlan(t, namespace))
			e.Sync(t)
			return cluster.Tenant, "", []string{"patch", "installplan", "-n", namespace, "install-private",
				"--type=merge", "--patch", `{"spec":{"approved":true}}`}
		},
	},
	{
		name: "ClusterServiceVersion", on: "bundle",
		rule:    "namespaceObject.metadata.name != '%s' || clusterPermissions.all(r, !('*' in r.verbs))",
		message: "(bundle/constraint)",
		do: func(t *testing.T, e *harness.Env, namespace string) (cluster.User, string, []string) {
			plan := e.Stored(t, privatePlan(t, namespace))
			if err := unstructured.SetNestedField(plan.Object, "Installing", "status", "phase"); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Clients[cluster.OLM].Of(plan).UpdateStatus(t.Context(), plan,
				metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			e.Sync(t)
			return cluster.OLM, harness.AsJSON(t, privateCSV(namespace)), []string{"create", "-f", "-"}
		},
	},
}

// TestPrivateCatalog has a user of a namespace take every step to a catalog of their own and to the rights of a cluster
// admin (threat O24). Without a Constraint all of them succeed; each Constraint alone stops the step that it is about,
// after all steps before.
func TestPrivateCatalog(t *testing.T) {
	e := harness.Shared(t)
	t.Run("nothing stops it", func(t *testing.T) {
		namespace := privateNamespace(t, e)
		for _, step := range privateSteps {
			take(t, e, step, namespace)
		}
		if e.Stored(t, privateCSV(namespace)) == nil {
			t.Error("the operator is not there, so the other tests show nothing")
		}
	})
	for i, stopped := range privateSteps {
		t.Run(stopped.name, func(t *testing.T) {
			namespace := privateNamespace(t, e)
			for _, step := range privateSteps[:i] {
				take(t, e, step, namespace)
			}
			constrainStep(t, e, stopped, namespace)
			user, stdin, args := stopped.do(t, e, namespace)
			harness.WantRefused(t, e.Cluster, user, stdin, args, "by Constraint "+namespace, stopped.message)
		})
	}
}

// take takes a step, which succeeds.
func take(t *testing.T, e *harness.Env, step privateStep, namespace string) {
	t.Helper()
	user, stdin, args := step.do(t, e, namespace)
	harness.Kubectl(t, e.Cluster, user, stdin, args...)
}

// constrainStep makes the Constraint against a step.
func constrainStep(t *testing.T, e *harness.Env, step privateStep, namespace string) {
	t.Helper()
	list, err := json.Marshal([]any{map[string]any{"type": "olm.constraint",
		"value": map[string]any{"on": step.on, "rule": fmt.Sprintf(step.rule, namespace)}}})
	if err != nil {
		t.Fatal(err)
	}
	constraint := harness.Object("{apiVersion: operators.coreos.com/v1, kind: Constraint, metadata: {name: %s}}",
		namespace)
	constraint.Object["spec"] = map[string]any{"constraints": string(list)}
	e.Put(t, constraint)
	e.Sync(t)
}

// privateNamespace is a namespace in which the tenant has the rights of its admin, with a ConfigMap of bundles.
func privateNamespace(t *testing.T, e *harness.Env) string {
	t.Helper()
	namespace := e.NewNamespace(t)
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "role", "-n", namespace, "admin", "--verb=create",
		"--resource=configmaps,catalogsources.operators.coreos.com,operatorgroups.operators.coreos.com")
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "rolebinding", "-n", namespace, "admin", "--role=admin",
		"--user="+string(cluster.Tenant))
	bundles := harness.Object("{apiVersion: v1, kind: ConfigMap, metadata: {name: bundles, namespace: %s}}", namespace)
	bundles.Object["data"] = map[string]any{"clusterServiceVersions": harness.AsJSON(t, privateCSV(namespace)),
		"packages": "- {packageName: rootkit}"}
	harness.Eventually(t, "the tenant may create ConfigMaps", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Tenant, harness.AsJSON(t, bundles), "create", "-f", "-")
		if err == nil && result.ExitCode != 0 {
			return fmt.Errorf("kubectl: %s", result.Stderr)
		}
		return err
	})
	t.Cleanup(func() {
		for _, u := range []*unstructured.Unstructured{privateCSV(namespace), privateCatalog(namespace)} {
			e.Remove(t, u)
		}
		e.Sync(t)
	})
	return namespace
}

func privateCatalog(namespace string) *unstructured.Unstructured {
	return harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {name: private, namespace: %s}
spec: {sourceType: internal, configMap: bundles}
`, namespace)
}

// privateCSV asks for every right on the cluster.
func privateCSV(namespace string) *unstructured.Unstructured {
	return harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: rootkit.v1.0.0
  namespace: %s
  annotations:
    operatorframework.io/properties: '{"properties":[{"type":"olm.package","value":{"packageName":"rootkit","version":"1.0.0"}}]}'
spec:
  displayName: rootkit
  install:
    strategy: deployment
    spec:
      deployments: []
      clusterPermissions:
        - serviceAccountName: default
          rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
`, namespace)
}

// privatePlan is what OLM makes of the Subscription.
func privatePlan(t *testing.T, namespace string) *unstructured.Unstructured {
	t.Helper()
	csv := privateCSV(namespace)
	csv.SetNamespace("")
	plan := harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: InstallPlan
metadata: {name: install-private, namespace: %[1]s}
spec: {approval: Manual, approved: false, generation: 1, clusterServiceVersionNames: [rootkit.v1.0.0]}
status:
  phase: RequiresApproval
  catalogSources: [private]
  plan:
    - resolving: rootkit.v1.0.0
      status: Unknown
      resource:
        group: operators.coreos.com
        version: v1alpha1
        kind: ClusterServiceVersion
        name: rootkit.v1.0.0
        sourceName: private
        sourceNamespace: %[1]s
        manifest: ""
`, namespace)
	steps, _, err := unstructured.NestedSlice(plan.Object, "status", "plan")
	if err != nil {
		t.Fatal(err)
	}
	steps[0].(map[string]any)["resource"].(map[string]any)["manifest"] = harness.AsJSON(t, csv)
	if err := unstructured.SetNestedSlice(plan.Object, steps, "status", "plan"); err != nil {
		t.Fatal(err)
	}
	return plan
}
