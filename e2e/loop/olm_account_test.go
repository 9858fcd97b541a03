package loop

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// installer is the ServiceAccount that OLM installs as.
const installer = "installer"

// accountPolicy has an operator installed in a namespace by OLM as a ServiceAccount, which has no rights yet.
func accountPolicy(
	t *testing.T, e *harness.OLMEnv, namespace, pkg string, versions ...string,
) *unstructured.Unstructured {
	t.Helper()
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "serviceaccount", "-n", namespace, installer)
	p := harness.WithField(harness.GroupedPolicy(namespace, pkg, versions...), installer, "spec", "operatorGroup",
		"serviceAccountName")
	if len(versions) > 0 {
		p = harness.WithField(p, versions[0], "spec", "subscription", "startingCSV")
	}
	e.Apply(t, p)
	return p
}

// grant lets the account do what OLM's manual asks for, in its namespace.
func grant(t *testing.T, e *harness.OLMEnv, namespace string) {
	t.Helper()
	e.Apply(t, harness.Object(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %[2]s, namespace: %[1]s}
rules:
  - {apiGroups: [operators.coreos.com], resources: [subscriptions, clusterserviceversions], verbs: [get, create, update, patch]}
  - {apiGroups: [""], resources: [services, serviceaccounts], verbs: [get, create, update, patch]}
  - {apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings], verbs: [get, create, update, patch]}
  - {apiGroups: [apps], resources: [deployments], verbs: [list, watch, get, create, update, patch, delete]}
  - {apiGroups: [""], resources: [pods], verbs: [list, watch, get, create, update, patch, delete]}
`, namespace, installer), harness.Object(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[2]s, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[2]s}
subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[1]s}]
`, namespace, installer))
}

// installsAsAccount is about an OperatorGroup with an account: OLM writes the steps of plans, and the operator itself,
// as that account, which the gate takes for OLM as far as the running plan goes. One operator brings another one: the
// account writes the Subscription to it.
func installsAsAccount(t *testing.T, e *harness.OLMEnv) {
	alone, both := e.NewNamespace(t), e.NewNamespace(t)
	p, vault := accountPolicy(t, e, alone, "etcd", harness.Etcd2), accountPolicy(t, e, both, "vault")

	// The status names the right that is missing. OLM goes on by itself once the account has it.
	forbidden := wantCondition("InstallPlanCompliant=False InstallPlansInstalling", "retrying execution due to error",
		"is forbidden: User \"system:serviceaccount:"+alone+":"+installer)
	waitForPolicy(t, e, p, is(nonCompliant), has(""), forbidden)
	grant(t, e, alone)
	grant(t, e, both)
	e.WaitForCSV(t, alone, harness.Etcd2)
	e.WaitForCSV(t, both, "vaultoperator.v1.0.0")
	e.WaitForCSV(t, both, harness.Etcd4)
	waitForPolicy(t, e, vault, is(compliant), has("vaultoperator.v1.0.0"))
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd2),
		wantCondition("OperatorGroupCompliant=True OperatorGroupMatches"))
	harness.WantField(t, e.Get(t, harness.OperatorGroups, alone, alone), `"`+installer+`"`, "spec",
		"serviceAccountName")

	upgrade := e.WaitForPlan(t, alone, harness.Etcd4)
	e.WantApprovalRefused(t, cluster.Admin, upgrade, harness.Etcd4, "(bundle/version)")
	e.Edit(t, p, `{"spec":{"versions":["`+harness.Etcd2+`","`+harness.Etcd4+`"]}}`)
	e.WaitForCSV(t, alone, harness.Etcd4)
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd4))
	done := e.Get(t, harness.InstallPlans, alone, upgrade.GetName())
	harness.WantField(t, done, `"`+installer+`"`, "status", "attenuatedServiceAccountRef", "name")
}

// awayFromAccount stops Opgate for longer than OLM repeats a step, a minute after the first attempt. The plan fails:
// the account belongs to a tenant, so its writes are refused while no replica answers, unlike OLM's own.
func awayFromAccount(t *testing.T, e *harness.OLMEnv, p *unstructured.Unstructured) {
	namespace, _, _ := unstructured.NestedString(p.Object, "spec", "subscription", "namespace")
	waitForPolicy(t, e, p, is(nonCompliant), has(""),
		wantCondition("InstallPlanCompliant=False InstallPlansInstalling", "retrying execution due to error"))
	if _, err := e.Gate.Stop(); err != nil {
		t.Fatal(err)
	}
	grant(t, e, namespace)
	e.Eventually(t, "see OLM fail the plan", func(ctx context.Context) error {
		plans, err := e.Clients[cluster.Admin].Resource(harness.InstallPlans).Namespace(namespace).List(ctx,
			metav1.ListOptions{})
		if err != nil || len(plans.Items) != 1 {
			return fmt.Errorf("there are %d plans, %w", len(plans.Items), err)
		}
		phase, _, _ := unstructured.NestedString(plans.Items[0].Object, "status", "phase")
		message, _, _ := unstructured.NestedString(plans.Items[0].Object, "status", "message")
		if phase != "Failed" || !strings.Contains(message, "failed calling webhook") {
			return fmt.Errorf("the plan is %s: %s", phase, message)
		}
		return nil
	})
	start := time.Now()
	e.Restart(t, cluster.GateOptions{Loop: true})
	waitForPolicy(t, e, p, is(compliant), has(harness.Etcd4))
	t.Logf("the operator was installed %s after Opgate was started again",
		time.Since(start).Round(100*time.Millisecond))
}
