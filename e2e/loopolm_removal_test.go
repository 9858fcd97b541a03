package e2e

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/olm"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// storyRemoval is story 6: what a policy has installed, another version of it removes, by the default with all that is not data.
func storyRemoval(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	p := loopPolicy(namespace, "cassandra")
	e.apply(t, p)
	e.waitForPolicy(t, p, is(compliant), has("cassandraoperator.v1.1.0"), says("CustomResourceDefinitionCompliant=True RelevantCRDFound"))

	e.edit(t, p, `{"spec":{"complianceType":"mustnothave","remediationAction":"inform"}}`)
	e.waitForPolicy(t, p, is(nonCompliant), has("cassandraoperator.v1.1.0"),
		says("SubscriptionCompliant=False SubscriptionPresent", "will not be deleted, because the policy is not enforced"))
	e.edit(t, p, `{"spec":{"remediationAction":"enforce"}}`)
	e.waitForPolicy(t, p, is(compliant), has(""), says("CustomResourceDefinitionCompliant=True CustomResourceDefinitionKept"))
	e.wantNames(t, subscriptions, namespace)
	e.wantNames(t, csvs, namespace)
	e.wantNames(t, operatorGroups, namespace)
	e.get(t, definitions, "", "cassandras.cassandra.example.com")
	if plans, err := e.names(t.Context(), installPlans, namespace); err != nil || len(plans) == 0 {
		t.Errorf("the plans are %v, %v, want them kept", plans, err)
	}
	again := with(subscription(namespace, "again", olm.Catalog, "Manual"), "cassandra", "spec", "name")
	refused(t, e.Cluster, cluster.Tenant, asJSON(t, again), []string{"create", "-f", "-"}, "(subscription/mustnothave)")
}

// storyRemovalOfAll is story 6 with everything deleted.
func storyRemovalOfAll(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	p := loopPolicy(namespace, "scylla")
	e.apply(t, p)
	e.waitForPolicy(t, p, is(compliant), has("scyllaoperator.v1.0.0"), says("CustomResourceDefinitionCompliant=True RelevantCRDFound"))
	e.edit(t, p, `{"spec":{"complianceType":"mustnothave","removalBehavior":{"customResourceDefinitions":"Delete","installPlans":"Delete"}}}`)
	e.waitForPolicy(t, p, is(compliant), has(""))
	e.waitForGone(t, definitions, "", "scyllas.scylla.example.com")
	e.wantNames(t, subscriptions, namespace)
	e.wantNames(t, csvs, namespace)
	e.wantNames(t, installPlans, namespace)
	e.wantNames(t, operatorGroups, namespace)
}

// storyRemovalOfVersion is story 7: only a version that is listed has to go.
func storyRemovalOfVersion(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	e.operatorGroup(t, namespace)
	p := with(loopPolicy(namespace, "etcd", etcd2), "mustnothave", "spec", "complianceType")
	unstructured.RemoveNestedField(p.Object, "spec", "operatorGroup")
	e.apply(t, p)
	e.sync(t)
	e.subscribe(t, namespace, "etcd", etcd0, "Automatic")
	e.approve(t, cluster.Tenant, e.waitForPlan(t, namespace, etcd0))
	e.waitForCSV(t, namespace, etcd0)
	e.waitForPolicy(t, p, is(compliant), has(etcd0))
	e.wantApprovalRefused(t, cluster.Admin, e.waitForPlan(t, namespace, etcd2), etcd2, "(plan/mustnothave)")
	e.wantNames(t, csvs, namespace, etcd0)

	e.edit(t, p, fmt.Sprintf(`{"spec":{"versions":[%q]}}`, etcd0))
	e.waitForPolicy(t, p, is(compliant), has(""))
	e.wantNames(t, csvs, namespace)
	e.wantNames(t, subscriptions, namespace)
	e.wantNames(t, operatorGroups, namespace, namespace) // somebody else's
}
