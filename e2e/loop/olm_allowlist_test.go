package loop

import (
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
	"github.com/opgate/opgate/internal/metakey"
)

// allowList is about a mayhave policy: a tenant asks for the operator, the loop approves what is allowed, and nothing
// else is written.
func allowList(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	p := harness.Object(`
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  remediationAction: enforce
  complianceType: mayhave
  subscription: {name: etcd, namespace: %[1]s, source: %[3]s, sourceNamespace: %[4]s}
  versions: [%[5]s]
  upgradeApproval: Automatic
`, namespace, cluster.PolicyNamespace, olm.Catalog, cluster.OLMNamespace, harness.Etcd2)
	e.Apply(t, p)
	waitForPolicy(t, e, p, is(compliant), wantCondition("SubscriptionCompliant=True SubscriptionNotPresent"),
		wantCondition("ClusterServiceVersionCompliant=True ClusterServiceVersionNotPresent"))
	e.WantNames(t, harness.OperatorGroups, namespace)
	e.WantNames(t, harness.Subscriptions, namespace)

	e.OperatorGroup(t, namespace)
	e.Subscribe(t, namespace, "etcd", harness.Etcd2, "Automatic")
	e.WaitForCSV(t, namespace, harness.Etcd2)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd2),
		wantCondition("SubscriptionCompliant=True SubscriptionMatches"),
		wantCondition("InstallPlanCompliant=True InstallPlanRequiresApproval", harness.Etcd4+" is not allowed"))
	sub := e.Get(t, harness.Subscriptions, namespace, "etcd")
	harness.WantField(t, sub, `"Manual"`, "spec", "installPlanApproval") // by admission
	if annotations := len(sub.GetAnnotations()); annotations != 1 ||
		sub.GetAnnotations()[metakey.RequestedApproval] != "Automatic" {
		t.Errorf("the Subscription has annotations %v, want only what it asked for", sub.GetAnnotations())
	}
	e.WantApprovalRefused(t, cluster.Admin, e.WaitForPlan(t, namespace, harness.Etcd4), harness.Etcd4,
		"(bundle/version)")

	e.Edit(t, p, `{"spec":{"versions":["`+harness.Etcd2+`","`+harness.Etcd4+`"]}}`)
	e.WaitForCSV(t, namespace, harness.Etcd4)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd4))

	// What is not allowed any more is reported, and stays.
	e.Edit(t, p, `{"spec":{"versions":["`+harness.Etcd2+`"]}}`)
	waitForPolicy(t, e, p, is(nonCompliant), has(harness.Etcd4),
		wantCondition("ClusterServiceVersionCompliant=False UnapprovedVersion"))

	// It installs nothing in the place of what its owner removes.
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "delete", "subscription,clusterserviceversion", "--all", "-n",
		namespace)
	waitForPolicy(t, e, p, is(compliant), has(""), wantCondition("SubscriptionCompliant=True SubscriptionNotPresent"))
	e.WantNames(t, harness.Subscriptions, namespace)

	// With planApproval it approves for a Manual Subscription, as in git, which stays so.
	e.Edit(t, p, `{"spec":{"planApproval":"IfAllowed"}}`)
	e.Subscribe(t, namespace, "etcd", harness.Etcd2, "Manual")
	e.WaitForCSV(t, namespace, harness.Etcd2)
	sub = e.Get(t, harness.Subscriptions, namespace, "etcd")
	harness.WantField(t, sub, `"Manual"`, "spec", "installPlanApproval")
	if len(sub.GetAnnotations()) > 0 {
		t.Errorf("the Subscription has annotations %v", sub.GetAnnotations())
	}
}
