package loop

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// forbiddenDependency has an operator without a policy require one that a policy forbids. The Subscription asks for
// Automatic, and becomes Manual, since the policy has to judge the plan (threat O52). One dependency is in the catalog
// itself, the other one an image.
func forbiddenDependency(t *testing.T, e *harness.OLMEnv, inline, image string) {
	etcd, redis := forbids(t, e, inline, "etcd"), forbids(t, e, image, "redis")
	e.Sync(t)
	seen, err := e.Clients[cluster.Admin].Resource(harness.ClusterServiceVersions).Namespace(inline).Watch(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	e.Subscribe(t, inline, "vault", "", "Automatic")
	e.Subscribe(t, image, "storefront", "", "Automatic")

	plan := e.WaitForPlan(t, inline, harness.Etcd4, "vaultoperator.v1.0.0")
	e.WantApprovalRefused(t, cluster.Admin, plan, harness.Etcd4+" is forbidden by OperatorPolicy ",
		"(bundle/mustnothave)")
	plan = e.WaitForPlan(t, image, "redisoperator.v1.1.0", "storefrontoperator.v2.0.0")
	e.WantApprovalRefused(t, cluster.Admin, plan, "redisoperator.v1.1.0 is forbidden by OperatorPolicy ",
		"(bundle/mustnothave)")

	// What ends it: without a Subscription that asks for the plan, or with a policy that allows its steps.
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "subscription", "-n", inline, "vault")
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "installplans", "-n", inline, "--all")
	waitForPolicy(t, e, etcd, is(compliant), has(""), wantCondition("InstallPlanCompliant=True NoInstallPlansFound"))
	e.Edit(t, redis, `{"spec":{"versions":["redisoperator.v1.0.0"]}}`)
	e.WaitForCSV(t, image, "redisoperator.v1.1.0")
	e.WaitForCSV(t, image, "storefrontoperator.v2.0.0")
	waitForPolicy(t, e, redis, is(compliant), has("redisoperator.v1.1.0"))

	seen.Stop()
	for event := range seen.ResultChan() {
		if u, ok := event.Object.(*unstructured.Unstructured); ok && strings.HasPrefix(u.GetName(), "etcdoperator.") {
			t.Errorf("%s was there for a while", u.GetName())
		}
	}
}

// forbids applies a mustnothave policy for a package in a namespace with an OperatorGroup that is not the policy's.
func forbids(t *testing.T, e *harness.OLMEnv, namespace, pkg string) *unstructured.Unstructured {
	t.Helper()
	e.OperatorGroup(t, namespace)
	p := harness.WithField(harness.GroupedPolicy(namespace, pkg), "mustnothave", "spec", "complianceType")
	unstructured.RemoveNestedField(p.Object, "spec", "operatorGroup")
	e.Apply(t, p)
	waitForPolicy(t, e, p, is(compliant))
	return p
}
