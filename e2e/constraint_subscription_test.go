package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/olm"
)

// curatedCatalog is a second one.
const curatedCatalog = "curated"

// subscriptionFrom is one to a package of a catalog.
func subscriptionFrom(namespace, name, catalog, startingCSV string) *unstructured.Unstructured {
	return object(`
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: %[1]s, namespace: %[2]s}
spec: {name: %[1]s, channel: %[3]s, source: %[4]s, sourceNamespace: %[5]s, startingCSV: %[6]q, installPlanApproval: Automatic}
`, name, namespace, olm.Channel, catalog, cluster.OLMNamespace, startingCSV)
}

// wantRefused tries to subscribe as the tenant until the gate knows enough to refuse.
func (e *olmEnv) wantRefused(t *testing.T, s *unstructured.Unstructured, says string) {
	t.Helper()
	e.eventually(t, "be refused", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Tenant, asJSON(t, s), "create", "--dry-run=server", "-f", "-")
		if err == nil && (result.ExitCode == 0 || !strings.Contains(result.Stderr, says)) {
			err = fmt.Errorf("exit code %d\n%s\nwant %q in it", result.ExitCode, result.Stderr, says)
		}
		return err
	})
}

// wantWarned subscribes as the tenant, in a dry run, until the gate knows enough to warn.
func (e *olmEnv) wantWarned(t *testing.T, s *unstructured.Unstructured, says string) {
	t.Helper()
	e.eventually(t, "be warned", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Tenant, asJSON(t, s), "create", "--dry-run=server", "-f", "-")
		if err == nil && (result.ExitCode != 0 || !strings.Contains(result.Stderr, says)) {
			err = fmt.Errorf("exit code %d\n%s\nwant %q in it", result.ExitCode, result.Stderr, says)
		}
		return err
	})
}

// curatedForTenants is the recipe: tenants are known by a label of their namespaces.
func curatedForTenants(t *testing.T, e *olmEnv) {
	if _, err := e.olm.AddCatalog(t.Context(), curatedCatalog, olm.Package{Name: "consul", CSV: "consuloperator", Versions: []string{"1.0.0"}}); err != nil {
		t.Fatal(err)
	}
	tenants, others := e.newNamespace(t), e.newNamespace(t)
	kubectl(t, e.Cluster, cluster.Admin, "", "label", "namespace", tenants, "curated-only=yes")
	e.constrain(t, constraintOf("curated-only", "!('curated-only' in namespaceObject.metadata.labels) || catalog.namespace == 'olm' && catalog.name == 'curated'",
		"tenants install from catalog olm/curated"))
	e.operatorGroup(t, tenants)
	e.operatorGroup(t, others)
	e.wantRefused(t, subscriptionFrom(tenants, "consul", olm.Catalog, ""), `subscription `+tenants+`/consul: package "consul" is not allowed by Constraint curated-only`+
		` (subscription/constraint): tenants install from catalog olm/curated (it must satisfy `)
	kubectl(t, e.Cluster, cluster.Tenant, asJSON(t, subscriptionFrom(tenants, "consul", curatedCatalog, "")), "create", "-f", "-")
	kubectl(t, e.Cluster, cluster.Tenant, asJSON(t, subscriptionFrom(others, "consul", olm.Catalog, "")), "create", "-f", "-")
	e.waitForApproval(t, tenants, "consul", "Manual", "Automatic")
	e.waitForApproval(t, others, "consul", "Automatic", "")
	e.waitForCSV(t, tenants, certified1)
	e.waitForCSV(t, others, certified1)

	// Who changes the catalog of a Subscription that is there asks again.
	refused(t, e.Cluster, cluster.Tenant, "", []string{"patch", "subscription", "-n", tenants, "consul", "--type=merge", "--patch", `{"spec":{"source":"` + olm.Catalog + `"}}`},
		"(subscription/constraint)")
}

// warnedSubscription is told early what will be held later.
func warnedSubscription(t *testing.T, e *olmEnv) {
	namespace := e.newNamespace(t)
	e.constrain(t, constraintOf(namespace, only(namespace, "packageName != 'etcd' || semver_compare(version, '0.9.4') < 0"), "etcd 0.9.4 loses data"))
	e.wantWarned(t, subscriptionFrom(namespace, "etcd", olm.Catalog, ""), "Warning: subscription "+namespace+"/etcd: "+etcd4+
		", the newest version in channel stable, will not be allowed by Constraint "+namespace+" (subscription/constraint): etcd 0.9.4 loses data")
	e.wantWarned(t, subscriptionFrom(namespace, "etcd", olm.Catalog, "etcdoperator.v0.9.3"), `Warning: subscription `+namespace+
		`/etcd: spec.startingCSV "etcdoperator.v0.9.3" is not in channel stable of catalog olm/`+olm.Catalog+` (subscription/unknown-csv): it has `+etcd4+`, `+etcd2+`, `+etcd0)
	e.wantWarned(t, subscriptionFrom(namespace, "future", olm.Catalog, ""), "futureoperator.v1.0.0, the newest version in channel stable, needs Kubernetes 1.99.0 or newer (plan/kube-version)")
	// What is asked for by name, and known, is refused.
	e.wantRefused(t, subscriptionFrom(namespace, "etcd", olm.Catalog, etcd4), etcd4+" is not allowed by Constraint "+namespace+" (subscription/constraint): etcd 0.9.4 loses data")

	// An older version may come, and the upgrade waits.
	e.operatorGroup(t, namespace)
	told := e.warnings(t, cluster.Tenant, asJSON(t, subscriptionFrom(namespace, "etcd", olm.Catalog, etcd2)), "create", "-f", "-")
	wantTexts(t, told, `spec.installPlanApproval was changed from "Automatic" to Manual by Constraint `+namespace+` (subscription/approval)`)
	if strings.Contains(told, "unknown-csv") || strings.Contains(told, "will not be allowed") {
		t.Errorf("it was warned of\n%s", told)
	}
	e.waitForCSV(t, namespace, etcd2)
	e.wantApprovalRefused(t, cluster.Admin, e.waitForPlan(t, namespace, etcd4), etcd4+" is not allowed by Constraint "+namespace, "(plan/constraint)")
	// The same is told where Automatic was never wanted, and of a Subscription that stays as it is.
	kubectl(t, e.Cluster, cluster.Tenant, "", "label", "subscription", "-n", namespace, "etcd", "team=shop")
}

// otherCluster has bundles that OLM would install and that would then wait for ever.
func otherCluster(t *testing.T, e *olmEnv) {
	kubernetes := kubernetesVersion(t, e.env)
	guarded, free := e.newNamespace(t), e.newNamespace(t)
	e.constrain(t, constraintOf(guarded, only(guarded, "packageName != 'etcd'"), ""))
	e.operatorGroup(t, guarded)
	e.operatorGroup(t, free)
	e.subscribe(t, guarded, "future", "", "Automatic")
	e.subscribe(t, free, "future", "", "Manual")
	e.wantApprovalRefused(t, cluster.Admin, e.waitForPlan(t, guarded, "futureoperator.v1.0.0"),
		"futureoperator.v1.0.0 needs Kubernetes 1.99.0 or newer and is held (plan/kube-version): this cluster has "+kubernetes+"; OLM would install it, and it would wait for ever")

	// Where nobody asked for a guard it is only told, and this is what OLM does then.
	hangs := e.waitForPlan(t, free, "futureoperator.v1.0.0")
	told := e.warnings(t, cluster.Tenant, "", "patch", "installplan", "-n", free, hangs.GetName(), "--type=merge", "--patch", approval)
	wantTexts(t, told, "futureoperator.v1.0.0 needs Kubernetes 1.99.0 or newer (plan/kube-version)")
	e.eventually(t, "see it hang", func(ctx context.Context) error {
		csv, err := e.clients[cluster.Admin].Resource(csvs).Namespace(free).Get(ctx, "futureoperator.v1.0.0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if reason, _, _ := unstructured.NestedString(csv.Object, "status", "reason"); reason != "RequirementsNotMet" {
			return fmt.Errorf("its reason is %q", reason)
		}
		return nil
	})

	// OpenShift, by the property of the bundle. The glass may be broken.
	kubectl(t, e.Cluster, cluster.Tenant, "", "delete", "subscription", "-n", guarded, "future")
	e.subscribe(t, guarded, "legacy", "", "Automatic")
	old := e.waitForPlan(t, guarded, "legacyoperator.v1.0.0")
	e.wantApprovalRefused(t, cluster.Admin, old, "legacyoperator.v1.0.0 is for OpenShift 4.18 at most and is held (plan/openshift-version): this cluster has "+openShift)
	told = e.warnings(t, cluster.Admin, "", "patch", "installplan", "-n", guarded, old.GetName(), "--type=merge", "--patch",
		`{"metadata":{"annotations":{"opgate.io/override-reason":"ticket 78"}},"spec":{"approved":true}}`)
	wantTexts(t, told, `overridden with reason "ticket 78" (plan/override)`, "(plan/openshift-version)")
	e.waitForCSV(t, guarded, "legacyoperator.v1.0.0")
}

// resolutionFailure is what OLM's resolver says of a Subscription, as an error that is nil if it does.
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

// waitForUnresolved waits until OLM says that a Subscription's constraints cannot be satisfied.
func (e *olmEnv) waitForUnresolved(t *testing.T, namespace, name string) {
	t.Helper()
	e.eventually(t, "see that "+name+" does not resolve", func(ctx context.Context) error {
		s, err := e.clients[cluster.Admin].Resource(subscriptions).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if failure := resolutionFailure(s); !strings.HasPrefix(failure, "ConstraintsNotSatisfiable") {
			return errors.New("resolution says " + failure)
		}
		return nil
	})
}
