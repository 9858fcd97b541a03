package loop

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
	"github.com/opgate/opgate/internal/metakey"
)

// storyRemoval is story 6: what a policy has installed, another version of it removes, by the default with all that is
// not data, and with the OperatorGroup that it created and no longer names.
func storyRemoval(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	p := harness.GroupedPolicy(namespace, "cassandra")
	e.Apply(t, p)
	waitForPolicy(t, e, p, is(compliant), has("cassandraoperator.v1.1.0"),
		wantCondition("CustomResourceDefinitionCompliant=True RelevantCRDFound"))

	e.Edit(t, p, `{"spec":{"complianceType":"mustnothave","remediationAction":"inform","operatorGroup":null}}`)
	waitForPolicy(t, e, p, is(nonCompliant), has("cassandraoperator.v1.1.0"),
		wantCondition("SubscriptionCompliant=False SubscriptionPresent",
			"will not be deleted, because the policy is not enforced"))
	e.Edit(t, p, `{"spec":{"remediationAction":"enforce"}}`)
	waitForPolicy(t, e, p, is(compliant), has(""),
		wantCondition("CustomResourceDefinitionCompliant=True CustomResourceDefinitionKept"),
		wantCondition("InstallPlanCompliant=True InstallPlanNotApplicable",
			"kept, since spec.removalBehavior.installPlans is Keep"))
	e.WantNames(t, harness.Subscriptions, namespace)
	e.WantNames(t, harness.ClusterServiceVersions, namespace)
	e.WantNames(t, harness.OperatorGroups, namespace)
	e.Get(t, harness.DefinitionResource, "", "cassandras.cassandra.example.com")
	if plans, err := e.Names(t.Context(), harness.InstallPlans, namespace); err != nil || len(plans) == 0 {
		t.Errorf("the plans are %v, %v, want them kept", plans, err)
	}
	again := harness.WithField(harness.Subscription(namespace, "again", olm.Catalog, "Manual"), "cassandra", "spec",
		"name")
	harness.WantRefused(t, e.Cluster, cluster.Tenant, harness.AsJSON(t, again), []string{"create", "-f", "-"},
		"(subscription/mustnothave)")
}

// storyRemovalOfAll is story 6 with everything deleted.
func storyRemovalOfAll(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	p := harness.GroupedPolicy(namespace, "scylla")
	e.Apply(t, p)
	waitForPolicy(t, e, p, is(compliant), has("scyllaoperator.v1.0.0"),
		wantCondition("CustomResourceDefinitionCompliant=True RelevantCRDFound"))
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
	p := harness.WithField(harness.GroupedPolicy(namespace, "etcd", harness.Etcd2), "mustnothave", "spec",
		"complianceType")
	unstructured.RemoveNestedField(p.Object, "spec", "operatorGroup")
	e.Apply(t, p)
	e.Sync(t)
	e.Subscribe(t, namespace, "etcd", harness.Etcd0, "Automatic")
	e.WaitForCSV(t, namespace, harness.Etcd0)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd0))
	e.WantApprovalRefused(t, cluster.Admin, e.WaitForPlan(t, namespace, harness.Etcd2), harness.Etcd2,
		"(bundle/mustnothave)")
	e.WantNames(t, harness.ClusterServiceVersions, namespace, harness.Etcd0)

	e.Edit(t, p, fmt.Sprintf(`{"spec":{"versions":[%q]}}`, harness.Etcd0))
	waitForPolicy(t, e, p, is(compliant), has(""))
	e.WantNames(t, harness.ClusterServiceVersions, namespace)
	e.WantNames(t, harness.Subscriptions, namespace)
	e.WantNames(t, harness.OperatorGroups, namespace, namespace) // not the policy's
}

// storyForbiddenVersion is story 7 for teams that go on: what is not forbidden is approved for those who asked for
// Automatic, without a hand, and they get that back when no policy needs Manual any more. Who said Manual keeps it.
func storyForbiddenVersion(t *testing.T, e *harness.OLMEnv) {
	automatic, manual := e.NewNamespace(t), e.NewNamespace(t)
	forbidding := func(namespace, csv string) *unstructured.Unstructured {
		p := harness.WithField(harness.GroupedPolicy(namespace, "etcd", csv), "mustnothave", "spec", "complianceType")
		unstructured.RemoveNestedField(p.Object, "spec", "operatorGroup")
		return p
	}
	p := forbidding(automatic, harness.Etcd0)
	e.Apply(t, p)
	e.Sync(t)
	e.Subscribe(t, automatic, "etcd", "", "Automatic")
	waitForRequest(t, e, automatic, "Manual", "Automatic")
	e.OperatorGroup(t, automatic)
	e.WaitForCSV(t, automatic, harness.Etcd4)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd4),
		wantCondition("InstallPlanCompliant=True InstallPlanNotApplicable", "not matched by the policy"))

	e.Remove(t, p)
	waitForRequest(t, e, automatic, "Automatic", "")
	e.Apply(t, forbidding(automatic, harness.Etcd0)) // the Subscription is older than this one
	waitForRequest(t, e, automatic, "Manual", "Automatic")
	managed := harness.WithField(harness.GroupedPolicy(automatic, "etcd"), "etcd-managed", "metadata", "name")
	unstructured.RemoveNestedField(managed.Object, "spec", "operatorGroup")
	e.Remove(t, p)
	e.Apply(t, managed) // it allows every version
	waitForRequest(t, e, automatic, "Automatic", "")
	e.Edit(t, managed, fmt.Sprintf(`{"spec":{"versions":[%q]}}`, harness.Etcd4))
	waitForRequest(t, e, automatic, "Manual", "Automatic")
	e.Remove(t, managed)
	waitForRequest(t, e, automatic, "Automatic", "")

	allowing := harness.WithField(harness.GroupedPolicy(manual, "etcd"), "mayhave", "spec", "complianceType")
	unstructured.RemoveNestedField(allowing.Object, "spec", "operatorGroup")
	e.Apply(t, allowing)
	e.Sync(t)
	e.OperatorGroup(t, manual)
	e.Subscribe(t, manual, "etcd", harness.Etcd2, "Manual")
	plan := e.WaitForPlan(t, manual, harness.Etcd2)
	waitForPolicy(t, e, allowing, is(compliant), wantCondition("InstallPlanCompliant=True InstallPlanRequiresApproval",
		harness.Etcd2+" is held: OperatorPolicy "+
			cluster.PolicyNamespace+"/"+allowing.GetName()+
			" allows it, and its Subscription asks for Manual approval, so that a user has to approve it"))
	e.Approve(t, cluster.Tenant, plan)
	e.WaitForCSV(t, manual, harness.Etcd2)
	upgrade := e.WaitForPlan(t, manual, harness.Etcd4)
	waitForPolicy(t, e, allowing, has(harness.Etcd2),
		wantCondition("InstallPlanCompliant=True InstallPlanRequiresApproval",
			harness.Etcd4+" is held: OperatorPolicy "))
	e.Remove(t, allowing)
	waitForRequest(t, e, manual, "Manual", "")
	harness.WantField(t, e.Get(t, harness.InstallPlans, manual, upgrade.GetName()), `false`, "spec", "approved")
}

// waitForRequest waits until the Subscription to etcd has an installPlanApproval, and the note of what it asked for.
func waitForRequest(t *testing.T, e *harness.OLMEnv, namespace, want, noted string) {
	t.Helper()
	e.Eventually(t, "installPlanApproval "+want+" noted "+noted, func(ctx context.Context) error {
		sub, err := e.Clients[cluster.Admin].Resource(harness.Subscriptions).Namespace(namespace).Get(ctx, "etcd",
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		approval, _, _ := unstructured.NestedString(sub.Object, "spec", "installPlanApproval")
		if note := sub.GetAnnotations()[metakey.RequestedApproval]; approval != want || note != noted {
			return fmt.Errorf("it is %q noted %q", approval, note)
		}
		return nil
	})
}
