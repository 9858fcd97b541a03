package loop

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

// orderedPolicy is a Policy beside all other policies with one template, and the kinds and names of what it waits for
// to be Compliant, such as "Policy", "database".
func orderedPolicy(
	t *testing.T, name string, template *unstructured.Unstructured, names ...string,
) *unstructured.Unstructured {
	t.Helper()
	raw, err := json.Marshal(template.Object)
	if err != nil {
		t.Fatal(err)
	}
	p := harness.Object(`
apiVersion: policy.open-cluster-management.io/v1
kind: Policy
metadata: {name: %s, namespace: %s}
spec: {remediationAction: enforce, policy-templates: [{objectDefinition: %s}]}
`, name, cluster.PolicyNamespace, raw)
	var dependencies []any
	for i := 0; i < len(names); i += 2 {
		dependencies = append(dependencies, map[string]any{"kind": names[i], "name": names[i+1],
			"compliance": "Compliant"})
	}
	if len(dependencies) > 0 {
		harness.WithField(p, dependencies, "spec", "dependencies")
	}
	return p
}

// waitForState waits until a Policy has a state, in its newest generation.
func waitForState(t *testing.T, e *harness.OLMEnv, p *unstructured.Unstructured, state string) {
	t.Helper()
	e.Eventually(t, "wait until policy "+p.GetName()+" is "+state, func(ctx context.Context) error {
		got, err := e.Clients[cluster.Admin].Resource(harness.Policies).Namespace(p.GetNamespace()).Get(ctx,
			p.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		observed, _, _ := unstructured.NestedInt64(got.Object, "status", "observedGeneration")
		if have, _, _ := unstructured.NestedString(got.Object, "status", "compliant"); have != state ||
			observed != got.GetGeneration() {
			return fmt.Errorf("its status is %v", got.Object["status"])
		}
		return nil
	})
}

// operatorWaits is about an operator that is to be installed when another one is Compliant. A plan of a Subscription
// that a user creates meanwhile is pending as well, and names its dependency.
func operatorWaits(t *testing.T, e *harness.OLMEnv) {
	first, second := e.NewNamespace(t), e.NewNamespace(t)
	// OLM goes for another etcd, so that one waits
	etcd, nats := harness.GroupedPolicy(first, "etcd", "etcdoperator.v0.0.1"), harness.GroupedPolicy(second, "nats")
	database, shop := orderedPolicy(t, "database-"+first, etcd),
		orderedPolicy(t, "shop-"+second, nats, "Policy", "database-"+first)
	e.Apply(t, shop, database)
	e.WaitForPlan(t, first, harness.Etcd4)
	waitForState(t, e, shop, "Pending")
	waitForPolicy(t, e, nats, is("Pending"), wantCondition("DependenciesSatisfied=False DependencyPending",
		"Policy "+cluster.PolicyNamespace+"/"+shop.GetName()))
	e.WantNames(t, harness.Subscriptions, second)
	e.WantNames(t, harness.OperatorGroups, second)

	e.Apply(t, harness.Object(
		`{apiVersion: operators.coreos.com/v1, kind: OperatorGroup, metadata: {name: %[1]s, namespace: %[1]s}, spec: {targetNamespaces: [%[1]s]}}`, second))
	if approval := e.Subscribe(t, second, "nats", "", "Automatic"); approval != "Manual" {
		t.Errorf("installPlanApproval is %q, want it changed to Manual", approval)
	}
	const version = "natsoperator.v2.0.0"
	plan := e.WaitForPlan(t, second, version)
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		e.WantApprovalRefused(t, user, plan, version+" is held by OperatorPolicy "+nats.GetNamespace()+"/"+
			nats.GetName()+" (bundle/dependency-pending): waits until what its Policy depends on is met")
	}
	e.WantNames(t, harness.ClusterServiceVersions, second)

	// The first is allowed, and the second follows by itself.
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "patch", "policies.policy.open-cluster-management.io", "-n",
		database.GetNamespace(), database.GetName(), "--type=json", "--patch",
		`[{"op":"replace","path":"/spec/policy-templates/0/objectDefinition/spec/versions","value":["`+harness.Etcd4+
			`"]}]`)
	e.WaitForCSV(t, first, harness.Etcd4)
	waitForState(t, e, database, "Compliant")
	e.WaitForCSV(t, second, version)
	waitForPolicy(t, e, nats, is(compliant), has(version))
	waitForState(t, e, shop, "Compliant")
	harness.WantField(t, e.Get(t, harness.InstallPlans, second, plan.GetName()), `true`, "spec", "approved")
}
