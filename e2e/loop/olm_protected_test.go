package loop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
)

// The operator that is protected, and its Subscription, as policies name it.
const (
	ledger    = "ledger"
	ledger2   = "ledgeroperator.v0.9.2"
	ledger4   = "ledgeroperator.v0.9.4"
	ledgerCRD = "ledgers.ledger.example.com"
)

func ledgerPackage() olm.Package {
	return olm.Package{Name: ledger, CSV: "ledgeroperator", Versions: []string{"0.9.2", "0.9.4"}, Owns: "Ledger"}
}

// pastPolicies plays a tenant, who has all rights to OLM's objects in the namespace, and a cluster admin who try to get
// an operator past its policy and a Constraint: they delete and prune, have it deleted, exchange its images, and
// install it by OLM v1 (threats O60, O61, O65, O66). Each step is refused in the words of its rule, and OLM goes on.
func pastPolicies(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	if err := e.InstallOLMv1(t.Context()); err != nil {
		t.Fatal(err)
	}
	letTenantManage(t, e, namespace)
	p := harness.WithField(harness.GroupedPolicy(namespace, ledger, ledger2), "Deny", "spec", "deletion")
	e.Apply(t, p)
	keep := harness.Object(`
apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: keep-%s}
spec: {deletion: {action: Confirm, packages: [%s]}}
`, namespace, ledger)
	e.Put(t, keep)
	e.WaitForCSV(t, namespace, ledger2)
	waitForPolicy(t, e, p, is(compliant), has(ledger2),
		wantCondition("CustomResourceDefinitionCompliant=True RelevantCRDFound"))
	e.Sync(t)

	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		deletesUnderDeny(t, e, p, user)
		prunes(t, e, namespace, user)
		disguises(t, e, namespace, user)
		exchangesImages(t, e, namespace, user)
		installsByOLMv1(t, e, namespace, user)
	}

	// OLM deletes what it has replaced, under Deny.
	e.Edit(t, p, fmt.Sprintf(`{"spec":{"versions":[%q,%q]}}`, ledger2, ledger4))
	e.WaitForCSV(t, namespace, ledger4)
	waitForPolicy(t, e, p, is(compliant), has(ledger4))

	e.Edit(t, p, `{"spec":{"deletion":"Allow"}}`)
	deletesUnderConfirm(t, e, namespace, keep)
	removedUnderDeny(t, e, p, keep)
}

// letTenantManage grants the tenant all rights to what OLM reads in a namespace.
func letTenantManage(t *testing.T, e *harness.OLMEnv, namespace string) {
	t.Helper()
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "role", "-n", namespace, "operators", "--verb=*",
		"--resource=subscriptions.operators.coreos.com,clusterserviceversions.operators.coreos.com,"+
			"operatorgroups.operators.coreos.com,configmaps")
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "rolebinding", "-n", namespace, "operators",
		"--role=operators", "--user="+string(cluster.Tenant))
	e.Eventually(t, "create a ConfigMap", func(ctx context.Context) error {
		got, err := e.Kubectl(ctx, cluster.Tenant, "", "create", "configmap", "owner", "-n", namespace)
		if err == nil && got.ExitCode != 0 {
			err = fmt.Errorf("%s", got.Stderr)
		}
		return err
	})
}

// deletesUnderDeny deletes all that is protected: a tenant what is in the namespace, a cluster admin the rest as well.
func deletesUnderDeny(t *testing.T, e *harness.OLMEnv, p *unstructured.Unstructured, user cluster.User) {
	t.Helper()
	namespace, _, _ := unstructured.NestedString(p.Object, "spec", "subscription", "namespace")
	targets := [][]string{
		{"subscription", ledger, "-n", namespace}, {"clusterserviceversion", ledger2, "-n", namespace},
		{"operatorgroup", namespace, "-n", namespace}, {"subscriptions", "--all", "-n", namespace},
	}
	if user == cluster.Admin {
		targets = slices.Concat(targets, [][]string{
			{"catalogsource", olm.Catalog, "-n", cluster.OLMNamespace}, {"customresourcedefinition", ledgerCRD},
			{"operatorpolicy", p.GetName(), "-n", p.GetNamespace()}, {"namespace", namespace},
			{"namespace", cluster.PolicyNamespace}, {"namespace", cluster.OLMNamespace},
		})
	}
	for _, target := range targets {
		harness.WantRefused(t, e.Cluster, user, "", slices.Concat([]string{"delete", "--wait=false"}, target),
			"by OperatorPolicy "+cluster.PolicyNamespace+"/"+p.GetName(), "(deletion/denied)",
			"held by the API server (ValidatingAdmissionPolicy opgate-deletion)")
	}
}

// prunes applies what a repository holds from which the Subscription is gone.
func prunes(t *testing.T, e *harness.OLMEnv, namespace string, user cluster.User) {
	t.Helper()
	harness.Kubectl(t, e.Cluster, user, "", "label", "subscription", ledger, "-n", namespace, "--overwrite", "from=git")
	harness.Kubectl(t, e.Cluster, user, "", "annotate", "subscription", ledger, "-n", namespace, "--overwrite",
		"kubectl.kubernetes.io/last-applied-configuration={}")
	rest := harness.Object(`
apiVersion: v1
kind: ConfigMap
metadata: {name: rest, namespace: %s, labels: {from: git}}
`, namespace)
	harness.WantRefused(t, e.Cluster, user, harness.AsJSON(t, rest), []string{"apply", "-n", namespace, "-f", "-",
		"--prune", "-l", "from=git", "--prune-allowlist=operators.coreos.com/v1alpha1/Subscription"}, "(deletion/denied)")
}

// disguises makes others delete what is protected: the garbage collector, by an owner that does not exist, and OLM, to
// which a copy without its original is left over. Another package would take it out of the policy.
func disguises(t *testing.T, e *harness.OLMEnv, namespace string, user cluster.User) {
	t.Helper()
	const owned = `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone",` +
		`"uid":"4c1d9a52-4b1e-4f0a-9d7c-2f8a1c0e5b11"}]}}`
	for _, c := range []struct{ kind, name, patch string }{
		{kind: "subscription", name: ledger, patch: owned},
		{kind: "clusterserviceversion", name: ledger2, patch: owned},
		{kind: "operatorgroup", name: namespace, patch: owned},
		{kind: "clusterserviceversion", name: ledger2, patch: `{"metadata":{"labels":{"olm.copiedFrom":"elsewhere"}}}`},
		{kind: "subscription", name: ledger, patch: `{"spec":{"name":"etcd"}}`},
	} {
		harness.WantRefused(t, e.Cluster, user, "", []string{"patch", c.kind, c.name, "-n", namespace, "--type=merge",
			"--patch", c.patch}, "a change of its owners, labels or package", "(deletion/denied)")
	}
}

// exchangesImages sets what the pods of the operator run, and read.
func exchangesImages(t *testing.T, e *harness.OLMEnv, namespace string, user cluster.User) {
	t.Helper()
	for what, config := range map[string]string{
		"env[RELATED_IMAGE_LEDGER]": `{"env":[{"name":"RELATED_IMAGE_LEDGER","value":"registry.example.com/evil:v1"}]}`,
		"volumes":                   `{"volumes":[{"name":"bin","emptyDir":{}}]}`,
		"envFrom":                   `{"envFrom":[{"configMapRef":{"name":"owner"}}]}`,
	} {
		harness.WantRefused(t, e.Cluster, user, "", []string{"patch", "subscription", ledger, "-n", namespace,
			"--type=merge", "--patch", `{"spec":{"config":` + config + `}}`}, what, "(subscription/config)")
	}
}

// installsByOLMv1 asks OLM v1 for the package, in any version, a range and one that is not allowed.
func installsByOLMv1(t *testing.T, e *harness.OLMEnv, namespace string, user cluster.User) {
	t.Helper()
	extension := func(version string) string {
		return harness.AsJSON(t, harness.Object(`
apiVersion: olm.operatorframework.io/v1
kind: ClusterExtension
metadata: {name: %[1]s}
spec: {namespace: %[1]s, source: {sourceType: Catalog, catalog: {packageName: %[2]s, version: %[3]q}}}
`, namespace, ledger, version))
	}
	create := []string{"create", "--dry-run=server", "-f", "-"}
	for _, version := range []string{"*", ">=0.9.0", "0.9.4"} {
		harness.WantRefused(t, e.Cluster, user, extension(version), create, "(clusterextension/version)")
	}
	harness.Kubectl(t, e.Cluster, user, extension("0.9.2"), create...)
}

// deletesUnderConfirm deletes what the Constraint alone protects, at last as it asks for. The policy installs it again.
func deletesUnderConfirm(t *testing.T, e *harness.OLMEnv, namespace string, keep *unstructured.Unstructured) {
	t.Helper()
	asks := []string{"by Constraint " + keep.GetName() + " (deletion/unconfirmed)"}
	remove := []string{"delete", "subscription", ledger, "-n", namespace, "--wait=false"}
	e.Eventually(t, "see the Constraint alone protect", func(ctx context.Context) error {
		got, err := e.Kubectl(ctx, cluster.Admin, "", append(remove, "--dry-run=server")...)
		if err == nil && !strings.Contains(got.Stderr, asks[0]) {
			err = fmt.Errorf("kubectl answers %s%s", got.Stdout, got.Stderr)
		}
		return err
	})
	confirm := func(user cluster.User, uid string) {
		harness.Kubectl(t, e.Cluster, user, "", "annotate", "subscription", ledger, "-n", namespace, "--overwrite",
			"opgate.io/delete-confirmed="+uid)
	}
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		harness.WantRefused(t, e.Cluster, user, "", remove, asks...)
		confirm(user, "yes")
		harness.WantRefused(t, e.Cluster, user, "", remove, asks...)
	}
	for _, target := range [][]string{{"constraint", keep.GetName()}, {"customresourcedefinition", ledgerCRD},
		{"namespace", namespace}, {"clusterserviceversion", ledger4, "-n", namespace}} {
		harness.WantRefused(t, e.Cluster, cluster.Admin, "", append([]string{"delete", "--wait=false"}, target...),
			asks...)
	}
	before := e.Get(t, harness.Subscriptions, namespace, ledger).GetUID()
	confirm(cluster.Tenant, string(before))
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", remove...)
	e.Eventually(t, "see the policy create the Subscription again", func(context.Context) error {
		now := e.Stored(t, harness.Named("Subscription", namespace, ledger))
		if now == nil || now.GetUID() == before {
			return fmt.Errorf("there is %v", now)
		}
		return nil
	})
	harness.WantRefused(t, e.Cluster, cluster.Tenant, "", remove, asks...)
}

// removedUnderDeny: a mustnothave policy removes nothing while the Constraint denies it, and both statuses state that.
func removedUnderDeny(t *testing.T, e *harness.OLMEnv, p, keep *unstructured.Unstructured) {
	t.Helper()
	action := func(value string) {
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "patch", "constraint", keep.GetName(), "--type=merge",
			"--patch", `{"spec":{"deletion":{"action":"`+value+`"}}}`)
	}
	states := func(text string) {
		e.Eventually(t, "see it in the status of the Constraint", func(context.Context) error {
			now := e.Get(t, harness.Constraints, "", keep.GetName())
			if !strings.Contains(fmt.Sprint(now.Object["status"]), text) {
				return fmt.Errorf("the status is %v", now.Object["status"])
			}
			return nil
		})
	}
	action("Deny")
	states("deletion Deny") // the loop knows it before the policy changes
	e.Edit(t, p, `{"spec":{"complianceType":"mustnothave","removalBehavior":{"customResourceDefinitions":"Delete"}}}`)
	waitForPolicy(t, e, p, is(nonCompliant), has(ledger4), wantCondition(
		"SubscriptionCompliant=False SubscriptionPresent",
		"spec.deletion.action of Constraint "+keep.GetName()+" is Deny"))
	states("deletion Deny, 1 mustnothave policy held back")
	action("Allow")
	waitForPolicy(t, e, p, is(compliant), has(""))
	e.WaitForGone(t, harness.DefinitionResource, "", ledgerCRD)
	e.Eventually(t, "delete the Constraint", func(ctx context.Context) error {
		got, err := e.Kubectl(ctx, cluster.Admin, "", "delete", "constraint", keep.GetName())
		if err == nil && got.ExitCode != 0 {
			err = fmt.Errorf("%s", got.Stderr)
		}
		return err
	})
}
