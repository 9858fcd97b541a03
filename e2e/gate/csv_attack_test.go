package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/olm"
)

// TestA5PlanLendsItsName borrows from InstallPlans for ClusterServiceVersions that no policy allows, in front of a real
// OLM (threats O9, O53). It has what OLM itself has a part in; scenarios have the other attacks.
func TestA5PlanLendsItsName(t *testing.T) {
	t.Parallel()
	e := harness.VacantOLM(t, constraintPackages())
	e.StartGate(t, cluster.GateOptions{Loop: true})
	e.Together(t, map[string]func(*testing.T, *harness.OLMEnv){
		"the account of a plan writes other contents while it runs": accountWritesOthers,
		"P1: a planted plan, and contents of it":                    attackP1,
	})
}

// etcdCSV is a ClusterServiceVersion of etcd with contents that no catalog has.
func etcdCSV(namespace, version string) *unstructured.Unstructured {
	u := installedCSV(namespace, "etcdoperator.v"+version, version)
	u.Object["spec"].(map[string]any)["displayName"] = "evil"
	return u
}

// accountWritesOthers writes as the ServiceAccount by which OLM writes the steps of a plan: the contents have to be
// those of the plan. OLM itself passes, for a bundle in the catalog and for one that is an image.
func accountWritesOthers(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	attenuatedGroup(t, e, namespace)
	e.Put(t, harness.OLMPolicy(namespace, "Automatic", "etcdoperator.v0.9.4"))
	image := harness.OLMPolicy(namespace, "Automatic", "redisoperator.v1.1.0")
	image.SetName(namespace + "-image")
	image.Object["spec"].(map[string]any)["subscription"].(map[string]any)["name"] = "redis"
	e.Put(t, image)
	waitForRefusal(t, e, namespace, "etcdoperator.v0.9.4", "forbidden")
	account := "--as=system:serviceaccount:" + namespace + ":weak"
	grantWeakAccount(t, e, namespace)
	harness.WantRefused(t, e.Cluster, cluster.Admin, harness.AsJSON(t, etcdCSV(namespace, "0.9.4")),
		[]string{account, "create", "-f", "-"}, "(bundle/catalog)")
	e.WaitForCSV(t, namespace, "etcdoperator.v0.9.4")
	e.WaitForCSV(t, namespace, "redisoperator.v1.1.0")
	stored := e.Stored(t, etcdCSV(namespace, "0.9.4"))
	if name, _, _ := unstructured.NestedString(stored.Object, "spec", "displayName"); name == "evil" {
		t.Error("the contents are those that the account wrote by hand")
	}
}

// attenuatedGroup makes OLM write the steps of plans as a ServiceAccount that has no rights yet.
func attenuatedGroup(t *testing.T, e *harness.OLMEnv, namespace string) {
	t.Helper()
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "serviceaccount", "-n", namespace, "weak")
	e.CreateAs(t, cluster.Admin, harness.Object(`
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: %[1]s, namespace: %[1]s}
spec: {targetNamespaces: [%[1]s], serviceAccountName: weak}
`, namespace))
}

func grantWeakAccount(t *testing.T, e *harness.OLMEnv, namespace string) {
	t.Helper()
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "rolebinding", "-n", namespace, "weak",
		"--clusterrole=cluster-admin", "--serviceaccount="+namespace+":weak")
}

// waitForRefusal waits until OLM states in the status of a plan why it cannot carry it out.
func waitForRefusal(t *testing.T, e *harness.OLMEnv, namespace, csv, why string) {
	t.Helper()
	e.Eventually(t, "see OLM refused with "+why, func(ctx context.Context) error {
		plans, err := e.Clients[cluster.Admin].Resource(harness.InstallPlans).Namespace(namespace).List(ctx,
			metav1.ListOptions{})
		if err != nil {
			return err
		}
		said := []string{}
		for i := range plans.Items {
			names, _, _ := unstructured.NestedStringSlice(plans.Items[i].Object, "spec", "clusterServiceVersionNames")
			message, _, _ := unstructured.NestedString(plans.Items[i].Object, "status", "message")
			if slices.Contains(names, csv) && strings.Contains(message, why) {
				return nil
			}
			said = append(said, fmt.Sprintf("%v: %s", names, message))
		}
		return fmt.Errorf("plans say %q", said)
	})
}

// waitForCondition waits until the conditions of a policy say something: a reason, or a type and its status.
func waitForCondition(t *testing.T, e *harness.OLMEnv, p *unstructured.Unstructured, what string) {
	t.Helper()
	e.Eventually(t, "see policy "+p.GetName()+" say "+what, func(ctx context.Context) error {
		now, err := find(ctx, e.Env, p)
		if err != nil || now == nil {
			return fmt.Errorf("policy is %v: %w", now, err)
		}
		conditions, _, err := unstructured.NestedSlice(now.Object, "status", "conditions")
		if err != nil {
			return err
		}
		said := []string{}
		for _, entry := range conditions {
			c := entry.(map[string]any)
			if c["reason"] == what || fmt.Sprint(c["type"], " ", c["status"]) == what {
				return nil
			}
			said = append(said, fmt.Sprint(c["type"], " ", c["status"], " ", c["reason"], " ", c["message"]))
		}
		return fmt.Errorf("conditions are\n%s", strings.Join(said, "\n"))
	})
}

// TestA10CopyMadeReal takes the label off a copy that OLM has made, or changes it, so that OLM would run what it shows.
func TestA10CopyMadeReal(t *testing.T) {
	e := harness.Shared(t)
	governed, free := e.NewNamespace(t), e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(governed))
	e.Sync(t)
	copied := func(namespace string) *unstructured.Unstructured {
		u := etcdCSV(namespace, harness.ForbiddenVersion)
		u.SetLabels(map[string]string{"olm.copiedFrom": "elsewhere"})
		e.CreateAs(t, cluster.OLM, u)
		return u
	}
	target, control := copied(governed), copied(free)
	for name, change := range map[string]string{
		"removed":                     `{"metadata":{"labels":{"olm.copiedFrom":null}}}`,
		"removed with other contents": `{"metadata":{"labels":{"olm.copiedFrom":null}},"spec":{"displayName":"worse"}}`,
		"emptied":                     `{"metadata":{"labels":{"olm.copiedFrom":""}}}`,
		"changed":                     `{"metadata":{"labels":{"olm.copiedFrom":"another"}}}`,
	} {
		patch := func(u *unstructured.Unstructured) []string {
			return []string{"patch", "csv", "-n", u.GetNamespace(), u.GetName(), "--type=merge", "--dry-run=server",
				"--patch", change}
		}
		t.Log(name)
		harness.WantRefused(t, e.Cluster, cluster.Admin, "", patch(target), harness.ForbiddenCSV+" is not allowed",
			"(bundle/version)")
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", patch(control)...)
		harness.Kubectl(t, e.Cluster, cluster.OLM, "", patch(target)...)
	}
}

// TestA6ContentsExchanged changes what makes up an operator that a policy allows. TestG7Bypass does it in every way of
// writing.
func TestA6ContentsExchanged(t *testing.T) {
	e := harness.Shared(t)
	governed := e.NewNamespace(t)
	target := e.Put(t, installedCSV(governed, harness.AllowedCSV, harness.AllowedVersion))
	e.Put(t, harness.OperatorPolicy(governed))
	e.Sync(t)
	patch := func(change string) []string {
		return []string{"patch", "csv", "-n", governed, target.GetName(), "--type=merge", "--patch", change}
	}
	harness.WantRefused(t, e.Cluster, cluster.Admin, "",
		patch(`{"spec":{"install":{"spec":{"deployments":[{"name":"evil","spec":{"selector":{},"template":{}}}]}}}}`),
		"(csv/frozen)")
	harness.WantRefused(t, e.Cluster, cluster.Admin, "", patch(`{"spec":{"version":"0.9.9"}}`), "(csv/frozen)")
	harness.Kubectl(t, e.Cluster, cluster.OLM, "", patch(`{"spec":{"version":"0.9.9"}}`)...)
}

// TestC1FieldsAreSent changes each field that rules read of an installed operator (attacks-3, c1): the gate is asked, and
// refuses. What it does not read it lets pass. TestC1FieldsAreSent of package admission has every key.
func TestC1FieldsAreSent(t *testing.T) {
	e := harness.Shared(t)
	governed := e.NewNamespace(t)
	target := e.Put(t, installedCSV(governed, harness.AllowedCSV, harness.AllowedVersion))
	e.Put(t, harness.OperatorPolicy(governed))
	e.Sync(t)
	patch := func(change string) []string {
		return []string{"patch", "csv", "-n", governed, target.GetName(), "--type=merge", "--patch", change}
	}
	for _, key := range []string{"sidecar.istio.io/proxyImage", "sidecar.istio.io/inject", "note", "olm.properties",
		"container.apparmor.security.beta.kubernetes.io/c", "argocd.argoproj.io", "pre.hook.backup.velero.io/command"} {
		harness.WantRefused(t, e.Cluster, cluster.Admin, "", patch(fmt.Sprintf(`{"metadata":{"annotations":{%q:""}}}`, key)),
			"changing metadata.annotations["+key+"]", "(csv/frozen)")
	}
	for _, field := range []string{"replaces", "version", "displayName"} {
		harness.WantRefused(t, e.Cluster, cluster.Admin, "", patch(fmt.Sprintf(`{"spec":{%q:"9.9.9"}}`, field)),
			"changing spec of", "(csv/frozen)")
	}
	harmless := map[string]any{}
	for _, key := range olm.HarmlessAnnotations() {
		if strings.HasSuffix(key, "/") {
			key += "any"
		}
		harmless[key] = "a"
	}
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", patch(harness.AsJSON(t, &unstructured.Unstructured{
		Object: map[string]any{"metadata": map[string]any{"annotations": harmless, "labels": map[string]any{"team": "a"}}}}))...)
	harness.Kubectl(t, e.Cluster, cluster.OLM, "", patch(`{"metadata":{"annotations":{"note":"by OLM"}}}`)...)
	harness.WantRefused(t, e.Cluster, cluster.Admin, "", patch(`{"metadata":{"annotations":{"note":null}}}`), "(csv/frozen)")
}
