package loop

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
)

// storyRemoval is story 6: what a policy has installed, another version of it removes, by the default with all that is not data,
// and with the OperatorGroup that it created and no longer names.
func storyRemoval(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	p := harness.GroupedPolicy(namespace, "cassandra")
	e.Apply(t, p)
	waitForPolicy(t, e, p, is(compliant), has("cassandraoperator.v1.1.0"), says("CustomResourceDefinitionCompliant=True RelevantCRDFound"))

	e.Edit(t, p, `{"spec":{"complianceType":"mustnothave","remediationAction":"inform","operatorGroup":null}}`)
	waitForPolicy(t, e, p, is(nonCompliant), has("cassandraoperator.v1.1.0"),
		says("SubscriptionCompliant=False SubscriptionPresent", "will not be deleted, because the policy is not enforced"))
	e.Edit(t, p, `{"spec":{"remediationAction":"enforce"}}`)
	waitForPolicy(t, e, p, is(compliant), has(""), says("CustomResourceDefinitionCompliant=True CustomResourceDefinitionKept"),
		says("InstallPlanCompliant=True InstallPlanNotApplicable", "kept, since spec.removalBehavior.installPlans is Keep"))
	e.WantNames(t, harness.Subscriptions, namespace)
	e.WantNames(t, harness.ClusterServiceVersions, namespace)
	e.WantNames(t, harness.OperatorGroups, namespace)
	e.Get(t, harness.DefinitionResource, "", "cassandras.cassandra.example.com")
	if plans, err := e.Names(t.Context(), harness.InstallPlans, namespace); err != nil || len(plans) == 0 {
		t.Errorf("the plans are %v, %v, want them kept", plans, err)
	}
	again := harness.WithField(harness.Subscription(namespace, "again", olm.Catalog, "Manual"), "cassandra", "spec", "name")
	harness.WantRefused(t, e.Cluster, cluster.Tenant, harness.AsJSON(t, again), []string{"create", "-f", "-"}, "(subscription/mustnothave)")
}

// storyRemovalOfAll is story 6 with everything deleted.
func storyRemovalOfAll(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	p := harness.GroupedPolicy(namespace, "scylla")
	e.Apply(t, p)
	waitForPolicy(t, e, p, is(compliant), has("scyllaoperator.v1.0.0"), says("CustomResourceDefinitionCompliant=True RelevantCRDFound"))
	e.Edit(t, p, `{"spec":{"complianceType":"mustnothave","removalBehavior":{"customResourceDefinitions":"Delete","installPlans":"Delete"}}}`)
	waitForPolicy(t, e, p, is(compliant), has(""))
	e.WaitForGone(t, harness.DefinitionResource, "", "scyllas.scylla.example.com")
	e.WantNames(t, harness.Subscriptions, namespace)
	e.WantNames(t, harness.ClusterServiceVersions, namespace)
	e.WantNames(t, harness.InstallPlans, namespace)
	e.WantNames(t, harness.OperatorGroups, namespace)
}

// storyRemovalOfVersion is story 7: only a version that is listed has to go.
func storyRemovalOfVersion(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	e.OperatorGroup(t, namespace)
	p := harness.WithField(harness.GroupedPolicy(namespace, "etcd", harness.Etcd2), "mustnothave", "spec", "complianceType")
	unstructured.RemoveNestedField(p.Object, "spec", "operatorGroup")
	e.Apply(t, p)
	e.Sync(t)
	e.Subscribe(t, namespace, "etcd", harness.Etcd0, "Automatic")
	e.Approve(t, cluster.Tenant, e.WaitForPlan(t, namespace, harness.Etcd0))
	e.WaitForCSV(t, namespace, harness.Etcd0)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd0))
	e.WantApprovalRefused(t, cluster.Admin, e.WaitForPlan(t, namespace, harness.Etcd2), harness.Etcd2, "(plan/mustnothave)")
	e.WantNames(t, harness.ClusterServiceVersions, namespace, harness.Etcd0)

	e.Edit(t, p, fmt.Sprintf(`{"spec":{"versions":[%q]}}`, harness.Etcd0))
	waitForPolicy(t, e, p, is(compliant), has(""))
	e.WantNames(t, harness.ClusterServiceVersions, namespace)
	e.WantNames(t, harness.Subscriptions, namespace)
	e.WantNames(t, harness.OperatorGroups, namespace, namespace) // not the policy's
}
