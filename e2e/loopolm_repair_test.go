package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/olm"
)

// slip writes a Subscription that no webhook sees, and a policy that nobody enforces yet, and returns the policy.
func (e *env) slip(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	namespace := e.newNamespace(t)
	e.subscribe(t, namespace, "etcd", "", "Automatic")
	p := loopPolicy(namespace, "etcd", etcd2)
	e.operatorGroup(t, namespace)
	e.apply(t, p)
	return p
}

// slippedHeals is about a Subscription whose plans OLM wants to create as approved. OLM repeats a failure a few times and then
// waits for its next resync, in a quarter of an hour; but what it is told here has the name that the plan would have had, so
// that it changes the Subscription each time, and looks at it anew.
func slippedHeals(t *testing.T, e *olmEnv, p *unstructured.Unstructured) {
	namespace, _, _ := unstructured.NestedString(p.Object, "spec", "subscription", "namespace")
	e.eventually(t, "see OLM try", func(context.Context) error {
		if tries := len(e.refusalsOfOLM(t)); tries < 3 {
			return fmt.Errorf("it tried %d times", tries)
		}
		return nil
	})
	e.wantNames(t, installPlans, namespace)
	if sub := e.get(t, subscriptions, namespace, "etcd"); !strings.Contains(fmt.Sprint(sub.Object["status"]), "(plan/born-approved)") {
		t.Errorf("the Subscription does not tell of the refusal: %v", sub.Object["status"])
	}

	e.restart(t, cluster.GateOptions{Loop: true})
	start := time.Now()
	e.waitForPlan(t, namespace, etcd4)
	t.Logf("there was a plan %s after the loop started", time.Since(start).Round(100*time.Millisecond))
	wantField(t, e.get(t, subscriptions, namespace, "etcd"), `"Manual"`, "spec", "installPlanApproval")
	e.waitForPolicy(t, p, is(nonCompliant), says("InstallPlanCompliant=True InstallPlanRequiresApproval", etcd4, "(plan/version)"))
	e.edit(t, p, `{"spec":{"versions":["`+etcd4+`"]}}`)
	e.waitForPolicy(t, p, is(compliant), has(etcd4))
}

// unhealthyCatalog stops a catalog of its own.
func unhealthyCatalog(t *testing.T, e *olmEnv) {
	const catalog = "spare-catalog"
	server, err := e.olm.AddCatalog(t.Context(), catalog, olm.Package{Name: "consul", CSV: "consuloperator", Versions: []string{"1.0.0"}})
	if err != nil {
		t.Fatal(err)
	}
	namespace := e.newNamespace(t)
	p := with(loopPolicy(namespace, "consul"), catalog, "spec", "subscription", "source")
	e.apply(t, p)
	e.waitForPolicy(t, p, is(compliant), has("consuloperator.v1.0.0"), says("CatalogSourcesUnhealthy=False CatalogSourcesFound"))
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.waitForPolicy(t, p, is(compliant), has("consuloperator.v1.0.0"), says("CatalogSourcesUnhealthy=False CatalogSourcesFoundUnhealthy"))
	e.edit(t, p, `{"spec":{"complianceConfig":{"catalogSourceUnhealthy":"NonCompliant"}}}`)
	e.waitForPolicy(t, p, is(nonCompliant), says("CatalogSourcesUnhealthy=True CatalogSourcesFoundUnhealthy"))
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.waitForPolicy(t, p, is(compliant), says("CatalogSourcesUnhealthy=False CatalogSourcesFound"))
}

// planDeleted is about a Subscription that refers to a plan which is gone. OLM would wait for it for ever.
func planDeleted(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	p := with(loopPolicy(namespace, "etcd", etcd2), etcd2, "spec", "subscription", "startingCSV")
	e.apply(t, p)
	e.waitForPolicy(t, p, is(compliant), has(etcd2))
	upgrade := e.waitForPlan(t, namespace, etcd4)
	start := time.Now()
	kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "installplan", "-n", namespace, upgrade.GetName())
	again := e.waitForPlan(t, namespace, etcd4)
	t.Logf("there was another plan %s after the first was deleted", time.Since(start).Round(100*time.Millisecond))
	if again.GetName() == upgrade.GetName() {
		t.Errorf("the plan is still %s", upgrade.GetName())
	}
	e.edit(t, p, `{"spec":{"versions":["`+etcd2+`","`+etcd4+`"]}}`)
	e.waitForPolicy(t, p, is(compliant), has(etcd4))
}

// lostLink deletes the Subscription of an operator that runs. OLM sees that the version is installed, and does not see that it
// belongs to the Subscription that the loop makes.
func lostLink(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	p := with(loopPolicy(namespace, "etcd", etcd2), etcd2, "spec", "subscription", "startingCSV")
	e.apply(t, p)
	e.waitForPolicy(t, p, is(compliant), has(etcd2))
	before := e.get(t, csvs, namespace, etcd2).GetUID()
	kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "subscription", "-n", namespace, "etcd")
	op := e.waitForPolicy(t, p, is(nonCompliant), has(etcd2), says("SubscriptionCompliant=False ConstraintsNotSatisfiable", "it lost track of its ClusterServiceVersion "+etcd2))
	if op.Status.SubscriptionInterventionTime == nil {
		t.Error("status.subscriptionInterventionTime is not set")
	}
	e.waitForPolicy(t, p, is(compliant), has(etcd2), says("SubscriptionCompliant=True SubscriptionMatches"))
	wantField(t, e.get(t, subscriptions, namespace, "etcd"), `"`+etcd2+`"`, "status", "installedCSV")
	if after := e.get(t, csvs, namespace, etcd2).GetUID(); after != before {
		t.Errorf("the ClusterServiceVersion was made anew: %s, before %s", after, before)
	}
}

// withoutPackageServer leaves nobody to ask about packages, which a policy that says everything does not need.
func withoutPackageServer(t *testing.T, e *olmEnv) {
	server := e.olm.PackageServer()
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Start(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	namespace := e.newNamespace(t)
	p := loopPolicy(namespace, "etcd", etcd4)
	e.apply(t, p)
	e.waitForPolicy(t, p, is(compliant), has(etcd4))
}

// opgateAway stops Opgate while OLM goes on, first with webhooks that refuse what nobody answers for, and then without any.
func opgateAway(t *testing.T, e *olmEnv) {
	namespace, past := e.newNamespace(t), e.newNamespace(t)
	p := with(loopPolicy(namespace, "etcd", etcd2, etcd4), etcd2, "spec", "subscription", "startingCSV")
	e.apply(t, p)
	e.eventually(t, "see the installation begin", func(ctx context.Context) error {
		_, err := e.clients[cluster.Admin].Resource(csvs).Namespace(namespace).Get(ctx, etcd2, metav1.GetOptions{})
		return err
	})
	if _, err := e.gate.Stop(); err != nil {
		t.Fatal(err)
	}
	e.waitForCSV(t, namespace, etcd2)
	// OLM tells, and then gives up until its next resync, in a quarter of an hour.
	e.eventually(t, "see OLM fail to plan the upgrade", func(ctx context.Context) error {
		sub, err := e.clients[cluster.Admin].Resource(subscriptions).Namespace(namespace).Get(ctx, "etcd", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := fmt.Sprint(sub.Object["status"]); !strings.Contains(text, "EnsureInstallPlanFailed") || !strings.Contains(text, "failed calling webhook") {
			return fmt.Errorf("its status is %s", text)
		}
		return nil
	})
	start := time.Now()
	e.restart(t, cluster.GateOptions{Loop: true})
	e.waitForPolicy(t, p, is(compliant), has(etcd4))
	t.Logf("the upgrade was installed %s after Opgate was started again", time.Since(start).Round(100*time.Millisecond))

	// As if somebody had uninstalled it.
	if _, err := e.gate.Stop(); err != nil {
		t.Fatal(err)
	}
	kubectl(t, e.Cluster, cluster.Admin, "", "delete", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "--all")
	kubectl(t, e.Cluster, cluster.Tenant, "", "patch", "subscription", "-n", namespace, "etcd", "--type=merge", "--patch", `{"spec":{"installPlanApproval":"Automatic"}}`)
	e.operatorGroup(t, past)
	e.subscribe(t, past, "prometheus", "", "Automatic")
	e.waitForCSV(t, past, "prometheusoperator.v0.47.0")

	e.restart(t, cluster.GateOptions{Loop: true})
	late := loopPolicy(past, "prometheus", "prometheusoperator.v0.46.0")
	unstructured.RemoveNestedField(late.Object, "spec", "operatorGroup")
	e.apply(t, late)
	e.eventually(t, "see the Subscription changed back", func(ctx context.Context) error {
		sub, err := e.clients[cluster.Admin].Resource(subscriptions).Namespace(namespace).Get(ctx, "etcd", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if mode, _, _ := unstructured.NestedString(sub.Object, "spec", "installPlanApproval"); mode != "Manual" {
			return fmt.Errorf("installPlanApproval is %s", mode)
		}
		return nil
	})
	e.waitForPolicy(t, p, is(compliant), has(etcd4), says("SubscriptionCompliant=True SubscriptionMatches"))
	e.waitForPolicy(t, late, is(nonCompliant), has("prometheusoperator.v0.47.0"),
		says("ClusterServiceVersionCompliant=False UnapprovedVersion", "prometheusoperator.v0.47.0"),
		says("SubscriptionCompliant=True SubscriptionMatches"))
	wantField(t, e.get(t, subscriptions, past, "prometheus"), `"Manual"`, "spec", "installPlanApproval")
}
