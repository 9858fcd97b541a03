package gate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/internal/metakey"
)

// TestBackstopOLM runs a real OLM with what Opgate left in the API server, after Opgate was stopped and its webhook
// configurations were deleted.
func TestBackstopOLM(t *testing.T) {
	t.Parallel()
	e := harness.VacantOLM(t, constraintPackages())
	s := &backstopSite{LoopEnv: &harness.LoopEnv{Env: e.Env}}
	s.Connect(t)
	before, err := harness.ReadAudit(e.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	s.start(t, "enforce")
	s.namespace = s.NewNamespace(t)
	image := s.NewNamespace(t)
	s.Put(t, mayHave(image, "redis", "redisoperator.v1.0.0"))
	// the last, so those before are in force with it
	s.policy = s.Put(t, mayHave(s.namespace, "etcd", harness.AllowedCSV))
	forbidden := s.Put(t, harness.InstallPlan(s.namespace, "forbidden", harness.ForbiddenVersion))
	harness.Eventually(t, "the API server refuses", s.approvable(s.namespace, "forbidden", false))
	s.abandon(t)
	s.Gate = nil
	harness.Eventually(t, "the API server refuses", s.approvable(s.namespace, "forbidden", false))
	s.Remove(t, forbidden)
	waitForMutation(t, s.Env, image, "redis")
	upgrade := upgradesAlone(t, e, image, "redis", "redisoperator.v1.0.0", "redisoperator.v1.1.0")
	unpackedAlone(t, e)
	overridesAlone(t, e, upgrade, "redisoperator.v1.1.0")
	wantOLMNeverRefused(t, e, len(before))
}

// waitForMutation waits until the API server changes Subscriptions by itself: it reads the MutatingAdmissionPolicy
// apart from the ValidatingAdmissionPolicy, which refuses Automatic before that.
func waitForMutation(t *testing.T, e *harness.Env, namespace, pkg string) {
	t.Helper()
	manifest := `{"apiVersion":"operators.coreos.com/v1alpha1","kind":"Subscription","metadata":{"name":"` + pkg +
		`","namespace":"` + namespace +
		`"},"spec":{"name":"` + pkg + `","source":"any","sourceNamespace":"olm","installPlanApproval":"Automatic"}}`
	harness.Eventually(t, "the API server makes Subscriptions Manual", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Tenant, manifest, "create", "--dry-run=server", "-o",
			"jsonpath={.spec.installPlanApproval}", "-f", "-")
		if err == nil && result.Stdout != "Manual" {
			err = fmt.Errorf("it answers %s%s", result.Stdout, result.Stderr)
		}
		return err
	})
}

// mayHave is a policy that allows one version of an operator, and does not install it.
func mayHave(namespace, pkg, version string) *unstructured.Unstructured {
	p := harness.OLMPolicy(namespace, "Automatic", version)
	spec := p.Object["spec"].(map[string]any)
	spec["complianceType"] = "mayhave"
	spec["subscription"].(map[string]any)["name"] = pkg
	return p
}

// upgradesAlone subscribes to an operator, installs the version that the policy allows, and returns the plan for the
// next one, which no user may approve or start.
func upgradesAlone(t *testing.T, e *harness.OLMEnv, namespace, pkg, allowed, next string) *unstructured.Unstructured {
	t.Helper()
	e.OperatorGroup(t, namespace)
	if approval := e.Subscribe(t, namespace, pkg, allowed, "Automatic"); approval != "Manual" {
		t.Errorf("installPlanApproval is %q, want it changed to Manual", approval)
	}
	e.Approve(t, cluster.Tenant, e.WaitForPlan(t, namespace, allowed))
	e.WaitForCSV(t, namespace, allowed)

	upgrade := e.WaitForPlan(t, namespace, next)
	patch := func(patch string, args ...string) []string {
		return append([]string{"patch", "installplan", "-n", namespace, upgrade.GetName(), "--type=merge", "--patch",
			patch}, args...)
	}
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		harness.WantRefused(t, e.Cluster, user, "", patch(harness.Approval), "(Forbidden)",
			"installplan "+namespace+"/"+upgrade.GetName()+": "+next+
				" is not allowed by OperatorPolicy "+cluster.PolicyNamespace+"/"+namespace+" (bundle/version): allowed is "+
				allowed, heldByServer)
		for _, phase := range []string{"Installing", "Complete"} {
			harness.WantRefused(t, e.Cluster, user, "",
				patch(`{"status":{"phase":"`+phase+`"}}`, "--subresource=status"),
				"(Forbidden)", "(plan/status-phase)", heldByServer)
		}
	}
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "patch", "subscriptions.operators.coreos.com", "-n", namespace,
		pkg, "--type=merge",
		"--patch", `{"spec":{"installPlanApproval":"Automatic"}}`)
	harness.WantField(t, e.Stored(t,
		harness.Object(`{apiVersion: operators.coreos.com/v1alpha1, kind: Subscription, metadata: {namespace: %s, name: %s}}`,
			namespace, pkg)), `"Manual"`, "spec", "installPlanApproval")
	return upgrade
}

// overridesAlone breaks the glass for a plan, which the API server records.
func overridesAlone(t *testing.T, e *harness.OLMEnv, plan *unstructured.Unstructured, csv string) {
	t.Helper()
	override := fmt.Sprintf(`{"metadata":{"annotations":{%q:"incident 7"}},"spec":{"approved":true}}`,
		metakey.OverrideReason)
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "patch", "installplan", "-n", plan.GetNamespace(), plan.GetName(),
		"--type=merge", "--patch", override)
	e.WaitForCSV(t, plan.GetNamespace(), csv)
	harness.Eventually(t, "the override is in the audit log", func(context.Context) error {
		events, err := harness.ReadAudit(e.AuditLog())
		for _, event := range events {
			if event.ObjectRef.Name == plan.GetName() && strings.Contains(event.Annotations["opgate-backstop/override"],
				`with reason "incident 7"`) {
				return nil
			}
		}
		return errors.Join(err, errors.New("it is not"))
	})
}

// unpackedAlone changes the contents of a bundle that OLM has unpacked.
func unpackedAlone(t *testing.T, e *harness.OLMEnv) {
	t.Helper()
	names := strings.Fields(harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", "configmaps", "-n",
		cluster.OLMNamespace, "-l", "olm.managed=true",
		"-o", "jsonpath={.items[*].metadata.name}"))
	unpacked := 0
	for _, name := range names {
		if len(name) != 63 {
			continue
		}
		unpacked++
		harness.WantRefused(t, e.Cluster, cluster.Admin, "",
			[]string{"patch", "configmap", "-n", cluster.OLMNamespace, name, "--type=merge",
				"--patch", `{"data":{"forged.yaml":"{}"}}`}, "(Forbidden)",
			"held by the API server (ValidatingAdmissionPolicy opgate-unpacked)")
	}
	if unpacked < 2 {
		t.Errorf("%d of the ConfigMaps %v hold bundles, want one for each version", unpacked, names)
	}
}

// wantOLMNeverRefused wants no write of OLM to be refused in the audit log, after a number of events.
func wantOLMNeverRefused(t *testing.T, e *harness.OLMEnv, after int) {
	t.Helper()
	events, err := harness.ReadAudit(e.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	writes := 0
	for _, event := range events[after:] {
		if event.User.Username != cluster.OLMUserName {
			continue
		}
		writes++
		if event.Response.Code == http.StatusForbidden {
			t.Errorf("OLM was refused: %+v", event)
		}
	}
	if writes == 0 {
		t.Errorf("no write of OLM is among %d events", len(events))
	}
	t.Logf("none of %d writes of OLM was refused", writes)
}
