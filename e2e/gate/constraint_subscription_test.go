package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
)

// subscriptionFrom is one to a package of a catalog.
func subscriptionFrom(namespace, name, catalog, startingCSV string) *unstructured.Unstructured {
	return harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: %[1]s, namespace: %[2]s}
spec: {name: %[1]s, channel: %[3]s, source: %[4]s, sourceNamespace: %[5]s, startingCSV: %[6]q, installPlanApproval: Automatic}
`, name, namespace, olm.Channel, catalog, cluster.OLMNamespace, startingCSV)
}

// wantRefused tries to subscribe as the tenant until the gate knows enough to refuse.
func wantRefused(t *testing.T, e *harness.OLMEnv, s *unstructured.Unstructured, says string) {
	t.Helper()
	e.Eventually(t, "be refused", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Tenant, harness.AsJSON(t, s), "create", "--dry-run=server", "-f", "-")
		if err == nil && (result.ExitCode == 0 || !strings.Contains(result.Stderr, says)) {
			err = fmt.Errorf("exit code %d\n%s\nwant %q in it", result.ExitCode, result.Stderr, says)
		}
		return err
	})
}

// wantWarned subscribes as the tenant, in a dry run, until the gate knows enough to warn.
func wantWarned(t *testing.T, e *harness.OLMEnv, s *unstructured.Unstructured, says string) {
	t.Helper()
	e.Eventually(t, "be warned", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Tenant, harness.AsJSON(t, s), "create", "--dry-run=server", "-f", "-")
		if err == nil && (result.ExitCode != 0 || !strings.Contains(result.Stderr, says)) {
			err = fmt.Errorf("exit code %d\n%s\nwant %q in it", result.ExitCode, result.Stderr, says)
		}
		return err
	})
}

// curatedForTenants is the recipe: tenants are known by a label of their namespaces.
func curatedForTenants(t *testing.T, e *harness.OLMEnv) {
	curated := "curated-" + rand.String(8) // the cluster is shared by the runs of -count
	if _, err := e.OLM.AddCatalog(t.Context(), curated, olm.Package{
		Name:     "consul",
		CSV:      "consuloperator",
		Versions: []string{"1.0.0"},
	}); err != nil {
		t.Fatal(err)
	}
	tenants, others := e.NewNamespace(t), e.NewNamespace(t)
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "label", "namespace", tenants, "curated-only=yes")
	constrain(t, e.Env, constraintOf("curated-only",
		"!('curated-only' in namespaceObject.metadata.labels) || catalog.namespace == 'olm' && catalog.name == '"+
			curated+"'",
		"tenants install from catalog olm/"+curated))
	e.OperatorGroup(t, tenants)
	e.OperatorGroup(t, others)
	wantRefused(t, e, subscriptionFrom(tenants, "consul", olm.Catalog, ""),
		`subscription `+tenants+`/consul: package "consul" is not allowed by Constraint curated-only`+
			` (subscription/constraint): tenants install from catalog olm/`+curated+` (it must satisfy `)
	e.CreateAs(t, cluster.Tenant, subscriptionFrom(tenants, "consul", curated, ""))
	e.CreateAs(t, cluster.Tenant, subscriptionFrom(others, "consul", olm.Catalog, ""))
	waitForApproval(t, e, tenants, "consul", "Manual", "Automatic")
	waitForApproval(t, e, others, "consul", "Automatic", "")
	e.WaitForCSV(t, tenants, certified1)
	e.WaitForCSV(t, others, certified1)

	// Who changes the catalog of a Subscription that exists asks again.
	harness.WantRefused(t, e.Cluster, cluster.Tenant, "",
		[]string{"patch", "subscription", "-n", tenants, "consul", "--type=merge", "--patch",
			`{"spec":{"source":"` + olm.Catalog + `"}}`},
		"(subscription/constraint)")
}

// warnedSubscription is warned early of what will be held later.
func warnedSubscription(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	constrain(t, e.Env, constraintOf(namespace,
		only(namespace, "packageName != 'etcd' || semver_compare(version, '0.9.4') < 0"), "etcd 0.9.4 loses data"))
	wantWarned(t, e, subscriptionFrom(namespace, "etcd", olm.Catalog, ""),
		"Warning: subscription "+namespace+"/etcd: "+harness.Etcd4+
			", the newest version in channel stable, will not be allowed by Constraint "+
			namespace+" (subscription/constraint): etcd 0.9.4 loses data")
	wantWarned(t, e, subscriptionFrom(namespace, "etcd", olm.Catalog, "etcdoperator.v0.9.3"),
		`Warning: subscription `+namespace+
			`/etcd: spec.startingCSV "etcdoperator.v0.9.3" is not in channel stable of catalog olm/`+olm.Catalog+
			` (subscription/unknown-csv): it has `+harness.Etcd4+`, `+harness.Etcd2+`, `+harness.Etcd0)
	wantWarned(t, e, subscriptionFrom(namespace, "future", olm.Catalog, ""),
		"futureoperator.v1.0.0, the newest version in channel stable, needs Kubernetes 1.99.0 or newer (bundle/kube-version)")
	// What is asked for by name, and known, is refused.
	wantRefused(t, e, subscriptionFrom(namespace, "etcd", olm.Catalog, harness.Etcd4),
		harness.Etcd4+" is not allowed by Constraint "+namespace+" (subscription/constraint): etcd 0.9.4 loses data")

	// An older version may come, and the upgrade waits.
	e.OperatorGroup(t, namespace)
	warned := warnings(t, e.Env, cluster.Tenant,
		harness.AsJSON(t, subscriptionFrom(namespace, "etcd", olm.Catalog, harness.Etcd2)), "create", "-f", "-")
	harness.WantTexts(t, warned, `spec.installPlanApproval was changed from "Automatic" to Manual by Constraint `+
		namespace+` (subscription/approval)`)
	if strings.Contains(warned, "unknown-csv") || strings.Contains(warned, "will not be allowed") {
		t.Errorf("it was warned of\n%s", warned)
	}
	e.WaitForCSV(t, namespace, harness.Etcd2)
	e.WantApprovalRefused(t, cluster.Admin, e.WaitForPlan(t, namespace, harness.Etcd4),
		harness.Etcd4+" is not allowed by Constraint "+namespace, "(bundle/constraint)")
	// The same warning follows where Automatic was never wanted, and for a Subscription that stays unchanged.
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "label", "subscription", "-n", namespace, "etcd", "team=shop")
}

// otherCluster has bundles that OLM would install and that would then wait for ever.
func otherCluster(t *testing.T, e *harness.OLMEnv) {
	kubernetes := kubernetesVersion(t, e.Env)
	guarded, free := e.NewNamespace(t), e.NewNamespace(t)
	constrain(t, e.Env, constraintOf(guarded, only(guarded, "packageName != 'etcd'"), ""))
	e.OperatorGroup(t, guarded)
	e.OperatorGroup(t, free)
	e.Subscribe(t, guarded, "future", "", "Automatic")
	e.Subscribe(t, free, "future", "", "Manual")
	e.WantApprovalRefused(t, cluster.Admin, e.WaitForPlan(t, guarded, "futureoperator.v1.0.0"),
		"futureoperator.v1.0.0 needs Kubernetes 1.99.0 or newer and is held (bundle/kube-version): this cluster has "+
			kubernetes+"; OLM would install it, but it would stay Pending")

	// Where no Constraint applies there is only a warning, and this is what OLM does then.
	hangs := e.WaitForPlan(t, free, "futureoperator.v1.0.0")
	warned := warnings(t, e.Env, cluster.Tenant, "", "patch", "installplan", "-n", free, hangs.GetName(),
		"--type=merge", "--patch", harness.Approval)
	harness.WantTexts(t, warned, "futureoperator.v1.0.0 needs Kubernetes 1.99.0 or newer (bundle/kube-version)")
	e.Eventually(t, "see it hang", func(ctx context.Context) error {
		csv, err := e.Clients[cluster.Admin].Resource(harness.ClusterServiceVersions).Namespace(free).Get(ctx,
			"futureoperator.v1.0.0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if reason, _, _ := unstructured.NestedString(csv.Object, "status", "reason"); reason != "RequirementsNotMet" {
			return fmt.Errorf("its reason is %q", reason)
		}
		return nil
	})

	// OpenShift, by the property of the bundle. The glass may be broken.
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "subscription", "-n", guarded, "future")
	e.Subscribe(t, guarded, "legacy", "", "Automatic")
	old := e.WaitForPlan(t, guarded, "legacyoperator.v1.0.0")
	e.WantApprovalRefused(t, cluster.Admin, old,
		"legacyoperator.v1.0.0 is for OpenShift 4.18 at most and is held (bundle/openshift-version): this cluster has "+
			harness.OpenShiftVersion)
	warned = warnings(t, e.Env, cluster.Admin, "", "patch", "installplan", "-n", guarded, old.GetName(), "--type=merge",
		"--patch",
		`{"metadata":{"annotations":{"opgate.io/override-reason":"ticket 78"}},"spec":{"approved":true}}`)
	harness.WantTexts(t, warned, `overridden with reason "ticket 78" (plan/override)`, "(bundle/openshift-version)")
	e.WaitForCSV(t, guarded, "legacyoperator.v1.0.0")
}

// resolutionFailure is what OLM's resolver reports of a Subscription, as an error that is nil if it does.
func resolutionFailure(s *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(s.Object, "status", "conditions")
	for _, c := range conditions {
		c := c.(map[string]any)
		if c["type"] == "ResolutionFailed" && c["status"] == "True" {
			return fmt.Sprintf("%s: %s", c["reason"], c["message"])
		}
	}
	return ""
}

// waitForUnresolved waits until OLM reports that a Subscription's constraints cannot be satisfied.
func waitForUnresolved(t *testing.T, e *harness.OLMEnv, namespace, name string) {
	t.Helper()
	e.Eventually(t, "see that "+name+" does not resolve", func(ctx context.Context) error {
		s, err := e.Clients[cluster.Admin].Resource(harness.Subscriptions).Namespace(namespace).Get(ctx, name,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		if failure := resolutionFailure(s); !strings.HasPrefix(failure, "ConstraintsNotSatisfiable") {
			return errors.New("resolution says " + failure)
		}
		return nil
	})
}
