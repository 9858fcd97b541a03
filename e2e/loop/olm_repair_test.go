package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
)

// slip writes a Subscription that no webhook sees, and a policy that is not enforced yet, and returns the policy.
func slip(t *testing.T, e *harness.Env) *unstructured.Unstructured {
	t.Helper()
	namespace := e.NewNamespace(t)
	e.Subscribe(t, namespace, "etcd", "", "Automatic")
	p := harness.GroupedPolicy(namespace, "etcd", harness.Etcd2)
	e.OperatorGroup(t, namespace)
	e.Apply(t, p)
	return p
}

// slippedHeals is about a Subscription whose plans OLM wants to create as approved. OLM repeats a failure a few times
// and then waits for its next resync, in a quarter of an hour; but the refusal here has the name that the plan would
// have had, so that it changes the Subscription each time, and reconciles it again.
func slippedHeals(t *testing.T, e *harness.OLMEnv, p *unstructured.Unstructured) {
	namespace, _, _ := unstructured.NestedString(p.Object, "spec", "subscription", "namespace")
	e.Eventually(t, "see OLM try", func(context.Context) error {
		if tries := len(e.RefusalsOfOLM(t)); tries < 3 {
			return fmt.Errorf("it tried %d times", tries)
		}
		return nil
	})
	e.WantNames(t, harness.InstallPlans, namespace)
	if sub := e.Get(t, harness.Subscriptions, namespace, "etcd"); !strings.Contains(fmt.Sprint(sub.Object["status"]),
		"(plan/born-approved)") {
		t.Errorf("the Subscription does not tell of the refusal: %v", sub.Object["status"])
	}

	e.Restart(t, cluster.GateOptions{Loop: true})
	start := time.Now()
	e.WaitForPlan(t, namespace, harness.Etcd4)
	t.Logf("there was a plan %s after the loop started", time.Since(start).Round(100*time.Millisecond))
	harness.WantField(t, e.Get(t, harness.Subscriptions, namespace, "etcd"), `"Manual"`, "spec", "installPlanApproval")
	waitForPolicy(t, e, p, is(nonCompliant), wantCondition("InstallPlanCompliant=False InstallPlanRequiresApproval",
		harness.Etcd4, "(bundle/version)"))
	e.Edit(t, p, `{"spec":{"versions":["`+harness.Etcd4+`"]}}`)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd4))
}

// brokenCatalog deletes the catalog that keeps OLM from resolving a namespace, as the status advises. OLM has given up
// by then.
func brokenCatalog(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	e.Apply(t, harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {name: broken, namespace: %s}
spec: {sourceType: grpc, address: "127.0.0.1:1"}
`, namespace))
	e.Eventually(t, "see OLM fail to connect", func(context.Context) error {
		if state, _, _ := unstructured.NestedString(e.Get(t, harness.Resources["CatalogSource"], namespace,
			"broken").Object,
			"status", "connectionState", "lastObservedState"); state == "" {
			return errors.New("OLM has not tried yet")
		}
		return nil
	})
	p := harness.GroupedPolicy(namespace, "etcd", harness.Etcd4)
	e.Apply(t, p)
	waitForPolicy(t, e, p, is(nonCompliant), has(""),
		wantCondition("ResolutionFailed=True ErrorPreventedResolution", "catalogsource "+namespace+"/broken"),
		wantCondition("CatalogSourcesUnhealthy=False CatalogSourcesFoundUnhealthy", "until it is healthy or deleted"))
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "delete", "catalogsource", "-n", namespace, "broken")
	start := time.Now()
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd4))
	t.Logf("the operator was installed %s after the catalog was deleted", time.Since(start).Round(100*time.Millisecond))
}

// planDeleted is about a Subscription that refers to a plan which is gone. OLM would wait for it for ever.
func planDeleted(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	p := harness.WithField(harness.GroupedPolicy(namespace, "etcd", harness.Etcd2), harness.Etcd2, "spec",
		"subscription", "startingCSV")
	e.Apply(t, p)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd2))
	upgrade := e.WaitForPlan(t, namespace, harness.Etcd4)
	start := time.Now()
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "installplan", "-n", namespace, upgrade.GetName())
	again := e.WaitForPlan(t, namespace, harness.Etcd4)
	t.Logf("there was another plan %s after the first was deleted", time.Since(start).Round(100*time.Millisecond))
	if again.GetName() == upgrade.GetName() {
		t.Errorf("the plan is still %s", upgrade.GetName())
	}
	e.Edit(t, p, `{"spec":{"versions":["`+harness.Etcd2+`","`+harness.Etcd4+`"]}}`)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd4))
}

// lostLink deletes the Subscription of an operator that runs. OLM sees that the version is installed, and does not see
// that it belongs to the Subscription that the loop makes.
func lostLink(t *testing.T, e *harness.OLMEnv) { linkLost(t, e, "musthave") }

// lostLinkAllowed is lostLink under a policy that only allows the operator: a GitOps tool creates the Subscription again.
func lostLinkAllowed(t *testing.T, e *harness.OLMEnv) { linkLost(t, e, "mayhave") }

func linkLost(t *testing.T, e *harness.OLMEnv, complianceType string) {
	namespace := e.NewNamespace(t)
	p := harness.WithField(harness.GroupedPolicy(namespace, "etcd", harness.Etcd2), harness.Etcd2, "spec",
		"subscription", "startingCSV")
	e.Apply(t, p)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd2))
	// OLM plans the upgrade now. As long as it does, it writes the status of this Subscription to whatever has its name,
	// and so links the next one with the version that is installed.
	e.WaitForPlan(t, namespace, harness.Etcd4)
	harness.Unchanged(t, "the Subscription", 2*time.Second, func() string {
		return e.Get(t, harness.Subscriptions, namespace, "etcd").GetResourceVersion()
	})
	before := e.Get(t, harness.ClusterServiceVersions, namespace, harness.Etcd2).GetUID()
	state, condition := is(nonCompliant), "SubscriptionCompliant=False ConstraintsNotSatisfiable"
	if complianceType == "mayhave" {
		state, condition = is(compliant), "SubscriptionCompliant=True SubscriptionMatches"
		e.Apply(t, harness.WithField(p, complianceType, "spec", "complianceType"))
	}
	stored := e.Get(t, harness.Subscriptions, namespace, "etcd")
	again := &unstructured.Unstructured{Object: map[string]any{"spec": stored.Object["spec"]}}
	again.SetGroupVersionKind(stored.GroupVersionKind())
	again.SetNamespace(namespace)
	again.SetName("etcd")
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "subscription", "-n", namespace, "etcd")
	if complianceType == "mayhave" {
		e.Put(t, again)
	}
	op := waitForPolicy(t, e, p, state, has(harness.Etcd2),
		wantCondition(condition, "it lost track of its ClusterServiceVersion "+harness.Etcd2))
	if op.Status.SubscriptionInterventionTime == nil {
		t.Error("status.subscriptionInterventionTime is not set")
	}
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd2),
		wantCondition("SubscriptionCompliant=True SubscriptionMatches"))
	e.Eventually(t, "OLM links them", func(ctx context.Context) error { // as soon as the loop has made it resolve again
		if got, _, _ := unstructured.NestedString(e.Get(t, harness.Subscriptions, namespace, "etcd").Object, "status",
			"installedCSV"); got != harness.Etcd2 {
			return fmt.Errorf("status.installedCSV is %q", got)
		}
		return nil
	})
	if after := e.Get(t, harness.ClusterServiceVersions, namespace, harness.Etcd2).GetUID(); after != before {
		t.Errorf("the ClusterServiceVersion was made anew: %s, before %s", after, before)
	}
}

// opgateAway stops Opgate while OLM continues, first with webhooks whose calls fail, and then without any. The catalog
// offers the upgrades only then.
func opgateAway(t *testing.T, e *harness.OLMEnv) {
	const name = "moving-catalog"
	offered := olm.Package{Name: "influx", CSV: "influxoperator", Versions: []string{"1.0.0"}}
	installed, upgrade := "influxoperator.v1.0.0", "influxoperator.v1.1.0"
	catalog, err := e.OLM.AddImageCatalog(t.Context(), cluster.OLMNamespace, name, offered)
	if err != nil {
		t.Fatal(err)
	}
	namespace, free, past := e.NewNamespace(t), e.NewNamespace(t), e.NewNamespace(t)
	p := harness.WithField(harness.GroupedPolicy(namespace, "influx", installed, upgrade), name,
		"spec", "subscription", "source")
	// Its Subscription is Automatic, so that plans are born approved.
	all := harness.WithField(harness.GroupedPolicy(free, "influx"), name, "spec", "subscription", "source")
	e.Apply(t, p, all)
	for _, in := range []string{namespace, free} {
		e.Eventually(t, "see the installation begin", func(ctx context.Context) error {
			_, err := e.Clients[cluster.Admin].Resource(harness.ClusterServiceVersions).Namespace(in).Get(ctx,
				installed, metav1.GetOptions{})
			return err
		})
	}
	if _, err := e.Gate.Stop(); err != nil {
		t.Fatal(err)
	}
	e.WaitForCSV(t, namespace, installed)
	e.WaitForCSV(t, free, installed)
	offered.Versions = append(offered.Versions, "1.1.0")
	if err := catalog.Move(t.Context(), offered); err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, "see OLM plan the upgrade that has to be approved", func(ctx context.Context) error {
		plans, err := e.Clients[cluster.Admin].Resource(harness.InstallPlans).Namespace(namespace).List(ctx,
			metav1.ListOptions{})
		if err == nil && !slices.ContainsFunc(plans.Items, func(plan unstructured.Unstructured) bool {
			return strings.Contains(fmt.Sprint(plan.Object["spec"]), upgrade) &&
				strings.Contains(fmt.Sprint(plan.Object["status"]), "RequiresApproval")
		}) {
			err = fmt.Errorf("there are %d plans, none for it", len(plans.Items))
		}
		return err
	})
	// OLM reports the error, and then waits for its next resync, in a quarter of an hour.
	e.Eventually(t, "see OLM fail to plan the other", func(ctx context.Context) error {
		sub, err := e.Clients[cluster.Admin].Resource(harness.Subscriptions).Namespace(free).Get(ctx, "influx",
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := fmt.Sprint(sub.Object["status"]); !strings.Contains(text, "EnsureInstallPlanFailed") ||
			!strings.Contains(text, "failed calling webhook") {
			return fmt.Errorf("its status is %s", text)
		}
		return nil
	})
	start := time.Now()
	e.Restart(t, cluster.GateOptions{Loop: true})
	waitForPolicy(t, e, p, is(compliant), has(upgrade))
	waitForPolicy(t, e, all, is(compliant), has(upgrade))
	t.Logf("the upgrades were installed %s after Opgate was started again",
		time.Since(start).Round(100*time.Millisecond))

	// As if a user had uninstalled it.
	if _, err := e.Gate.Stop(); err != nil {
		t.Fatal(err)
	}
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "delete",
		"validatingwebhookconfigurations,mutatingwebhookconfigurations", "--all")
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "patch", "subscription", "-n", namespace, "influx", "--type=merge",
		"--patch", `{"spec":{"installPlanApproval":"Automatic"}}`)
	e.OperatorGroup(t, past)
	e.Subscribe(t, past, "prometheus", "", "Automatic")
	e.WaitForCSV(t, past, "prometheusoperator.v0.47.0")

	e.Restart(t, cluster.GateOptions{Loop: true})
	late := harness.GroupedPolicy(past, "prometheus", "prometheusoperator.v0.46.0")
	unstructured.RemoveNestedField(late.Object, "spec", "operatorGroup")
	e.Apply(t, late)
	e.Eventually(t, "see the Subscription changed back", func(ctx context.Context) error {
		sub, err := e.Clients[cluster.Admin].Resource(harness.Subscriptions).Namespace(namespace).Get(ctx, "influx",
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		if mode, _, _ := unstructured.NestedString(sub.Object, "spec", "installPlanApproval"); mode != "Manual" {
			return fmt.Errorf("installPlanApproval is %s", mode)
		}
		return nil
	})
	waitForPolicy(t, e, p, is(compliant), has(upgrade),
		wantCondition("SubscriptionCompliant=True SubscriptionMatches"))
	waitForPolicy(t, e, late, is(nonCompliant), has("prometheusoperator.v0.47.0"),
		wantCondition("ClusterServiceVersionCompliant=False UnapprovedVersion", "prometheusoperator.v0.47.0"),
		wantCondition("SubscriptionCompliant=True SubscriptionMatches"))
	harness.WantField(t, e.Get(t, harness.Subscriptions, past, "prometheus"), `"Manual"`, "spec", "installPlanApproval")
}
