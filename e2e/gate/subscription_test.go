package gate

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestO3ApprovalBecomesManual asks for automatic approval by every verb of kubectl, by users in turn. OLM approves the
// plans of an automatic Subscription as it writes them, without another request.
func TestO3ApprovalBecomesManual(t *testing.T) {
	e := harness.SharedWithoutBackstop(t) // else the API server changes it, and no webhook warns
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	manual := harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Manual")
	automatic := harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Automatic")
	t.Cleanup(func() { e.Remove(t, manual) })
	patch := func(kind, patch string) []string {
		return []string{"patch", "subscription", "-n", namespace, "etcd", "--type=" + kind, "--patch", patch}
	}
	users := []cluster.User{cluster.Tenant, cluster.Admin, cluster.OLM}
	for i, verb := range []struct {
		args  []string
		fresh bool // there must be no Subscription yet
		stdin bool
	}{
		{args: []string{"create", "-f", "-"}, fresh: true, stdin: true},
		{args: []string{"apply", "-f", "-"}, fresh: true, stdin: true},
		{args: []string{"apply", "-f", "-"}, stdin: true},
		{args: []string{"replace", "-f", "-"}, stdin: true},
		{args: []string{"replace", "--force", "-f", "-"}, stdin: true},
		{
			args:  []string{"apply", "--server-side", "--field-manager=another", "--force-conflicts", "-f", "-"},
			stdin: true,
		},
		{args: []string{"apply", "--server-side", "--field-manager=another", "-f", "-"}, fresh: true, stdin: true},
		{args: patch("merge", `{"spec":{"installPlanApproval":"Automatic"}}`)},
		{args: patch("merge", `{"spec":{"installPlanApproval":null}}`)},
		{args: patch("json", `[{"op":"replace","path":"/spec/installPlanApproval","value":"Automatic"}]`)},
		{args: patch("json", `[{"op":"remove","path":"/spec/installPlanApproval"}]`)},
	} {
		user := users[i%len(users)]
		name := fmt.Sprintf("kubectl %s as %s", strings.Join(verb.args, " "), user)
		e.Remove(t, manual)
		if !verb.fresh {
			if _, err := e.Create(t.Context(), manual); err != nil {
				t.Fatal(err)
			}
		}
		stdin := ""
		if verb.stdin {
			stdin = harness.AsJSON(t, automatic)
		}
		result, err := e.Kubectl(t.Context(), user, stdin, verb.args...)
		if err != nil {
			t.Fatal(err)
		}
		if result.ExitCode != 0 {
			t.Errorf("%s: exit code %d\n%s", name, result.ExitCode, result.Stderr)
			continue
		}
		if got := approvalOf(e.Stored(t, manual)); got != "Manual" {
			t.Errorf("%s: approval is %q", name, got)
		}
		if !strings.Contains(result.Stderr, "Warning: subscription "+
			namespace+"/etcd: spec.installPlanApproval was ") {
			t.Errorf("%s: there is no warning of the change\n%s", name, result.Stderr)
		}
	}
}

// TestG9NoFightOverApproval lets a second manager apply what the gate has changed, again and again: nothing moves any
// more.
func TestG9NoFightOverApproval(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	automatic := harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Automatic")
	t.Cleanup(func() { e.Remove(t, automatic) })
	apply := []string{"apply", "--server-side", "--field-manager=gitops", "-f", "-"}
	harness.Kubectl(t, e.Cluster, cluster.Tenant, harness.AsJSON(t, automatic), apply...)
	first := e.Stored(t, automatic)
	for range 2 {
		harness.Kubectl(t, e.Cluster, cluster.Tenant, harness.AsJSON(t, automatic), apply...)
	}
	if again := e.Stored(t, automatic); again.GetGeneration() != first.GetGeneration() ||
		approvalOf(again) != "Manual" {
		t.Errorf("generation went from %d to %d, approval is %q", first.GetGeneration(), again.GetGeneration(),
			approvalOf(again))
	}
}

// TestO8NothingBorrowed puts every label and annotation that OLM, Opgate or their neighbours read on what is forbidden.
// Only policies say what is allowed.
func TestO8NothingBorrowed(t *testing.T) {
	e := harness.Shared(t)
	namespace, free := e.NewNamespace(t), e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	keys := []string{
		"opgate.io/ignore", "opgate.io/managed-by", "opgate.io/override", "olm.managed", "olm.copiedFrom",
		"operators.coreos.com/etcd." + free, "policy.open-cluster-management.io/disable-templates",
		"operatorpolicy.policy.open-cluster-management.io/managed", "admission.gatekeeper.sh/ignore",
		"policies.kyverno.io/ignore",
		"app.kubernetes.io/managed-by", "kubernetes.io/metadata.name", "control-plane",
	}
	requested := map[string]string{}
	for _, key := range keys {
		requested[key] = "true"
	}
	requested["kubernetes.io/metadata.name"] = "opgate-system"
	requested["olm.copiedFrom"] = free
	annotations := map[string]string{"opgate.io/override-reason": "because I say so",
		"operatorframework.io/properties": `{"properties":[]}`}
	for key, value := range requested {
		annotations[key] = value
	}

	foreign := harness.Subscription(namespace, "etcd", harness.ForeignCatalog, "Manual")
	foreign.SetLabels(requested)
	foreign.SetAnnotations(annotations)
	harness.WantRefused(t, e.Cluster, cluster.Tenant, harness.AsJSON(t, foreign), []string{"create", "-f", "-"},
		harness.DeniedBy, "(subscription/catalog)")

	p := harness.InstallPlan(namespace, "marked", harness.ForbiddenVersion)
	p.SetLabels(requested)
	stored := e.Put(t, p)
	stored.SetAnnotations(annotations)
	stored.Object["spec"].(map[string]any)["approved"] = true
	harness.WantRefused(t, e.Cluster, cluster.Tenant, harness.AsJSON(t, stored), []string{"replace", "-f", "-"},
		harness.HeldBy, "(bundle/version)", "the override needs the verb override")
	if e.Stored(t, p).GetAnnotations()["opgate.io/override-reason"] != "" {
		t.Error("a refused write left its annotation")
	}
}

// TestG12NamespaceLabels lets a tenant label its namespace as it likes: it is gated all the same. Only opgate-system is
// not, and a namespace cannot take its name.
func TestG12NamespaceLabels(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	grant(t, e, namespace, cluster.Tenant, "namespaces", "get", "patch", "update")

	for _, label := range []string{
		"opgate.io/ignore=true", "opgate.io/exclude=true", "control-plane=controller-manager", "name=opgate-system",
		"admission.gatekeeper.sh/ignore=no-self-managing", "openshift.io/run-level=0", "olm.operatorgroup.uid/1=",
		"pod-security.kubernetes.io/enforce=privileged", "app.kubernetes.io/name=opgate",
	} {
		harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "label", "namespace", namespace, label)
	}
	// The API server sets this one itself, whatever is written.
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "label", "namespace", namespace, "--overwrite",
		"kubernetes.io/metadata.name=opgate-system")
	if got := harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "get", "namespace", namespace, "-o",
		`jsonpath={.metadata.labels.kubernetes\.io/metadata\.name}`); got != namespace {
		t.Errorf("the namespace took the name %q", got)
	}
	harness.WantRefused(t, e.Cluster, cluster.Tenant,
		harness.AsJSON(t, harness.Subscription(namespace, "etcd", harness.ForeignCatalog, "Manual")),
		[]string{"create", "-f", "-"}, harness.DeniedBy, "(subscription/catalog)")
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "label", "namespace", namespace, "kubernetes.io/metadata.name-")
	harness.WantRefused(t, e.Cluster, cluster.Tenant,
		harness.AsJSON(t, harness.Subscription(namespace, "etcd", harness.ForeignCatalog, "Manual")),
		[]string{"create", "-f", "-"}, harness.DeniedBy, "(subscription/catalog)")
}

// grant grants a user verbs on a namespace itself, and waits until it may.
func grant(t *testing.T, e *harness.Env, namespace string, user cluster.User, resource string, verbs ...string) {
	t.Helper()
	name := "e2e-" + namespace
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "role", "-n", namespace, name,
		"--verb="+strings.Join(verbs, ","), "--resource="+resource)
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "rolebinding", "-n", namespace, name, "--role="+name,
		"--user="+string(user))
	harness.Eventually(t, "wait for the permission", func(context.Context) error {
		got := e.Clients[user].Must(t, harness.Request{
			Method: http.MethodPatch, Path: "/api/v1/namespaces/" + namespace, Query: url.Values{"dryRun": {"All"}},
			ContentType: "application/merge-patch+json",
			Body:        []byte(`{"metadata":{"labels":{"e2e.opgate.io/granted":"true"}}}`),
		})
		if !got.OK() {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
}

// TestO4AdoptionByOLM lets OLM write metadata and status of objects that do not comply, as it does when it adopts what
// stood there before the policy. Refusing that would stall OLM, and change nothing about what is installed.
func TestO4AdoptionByOLM(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	foreign := e.Put(t, harness.Subscription(namespace, "foreign", harness.ForeignCatalog, "Automatic"))
	forbidden := e.Put(t, withPhase(harness.InstallPlan(namespace, "forbidden", harness.ForbiddenVersion), "Installing",
		true))
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	for _, u := range []struct{ kind, name string }{{
		kind: "subscription",
		name: foreign.GetName(),
	}, {
		kind: "installplan",
		name: forbidden.GetName(),
	}} {
		for _, patch := range []string{
			`{"metadata":{"labels":{"operators.coreos.com/etcd.` + namespace + `":""}}}`,
			`{"metadata":{"annotations":{"olm.generated-by":"forbidden"}}}`,
			`{"metadata":{"ownerReferences":[{"apiVersion":"operators.coreos.com/v1alpha1","kind":"Subscription","name":"foreign","uid":"` + string(foreign.GetUID()) + `"}]}}`,
			`{"metadata":{"finalizers":["e2e.opgate.io/held"]}}`,
			`{"metadata":{"finalizers":null}}`,
		} {
			harness.Kubectl(t, e.Cluster, cluster.OLM, "", "patch", u.kind, "-n", namespace, u.name, "--type=merge",
				"--patch", patch)
		}
	}
	stored := e.Stored(t, foreign)
	stored.Object["status"] = map[string]any{"lastUpdated": "2026-11-21T00:00:00Z", "currentCSV": harness.ForbiddenCSV,
		"state": "UpgradePending"}
	if _, err := e.Clients[cluster.OLM].Of(stored).UpdateStatus(t.Context(), stored,
		metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	stored = e.Stored(t, forbidden)
	stored.Object["status"].(map[string]any)["phase"] = "Complete"
	if _, err := e.Clients[cluster.OLM].Of(stored).UpdateStatus(t.Context(), stored,
		metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if approvalOf(e.Stored(t, foreign)) != "Automatic" {
		t.Error("a write of metadata changed the spec")
	}
}

// TestO3DenyMode runs the gate as users of GitOps tools do: what would be changed is refused, and the refusal names the
// value to write. OLM, which cannot react to it, is still corrected.
func TestO3DenyMode(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Restart(t, cluster.GateOptions{Args: []string{"--approval-mode=deny"}})
	e.Sync(t)
	automatic, manual := harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Automatic"),
		harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Manual")
	create := []string{"create", "-f", "-"}
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		harness.WantRefused(t, e.Cluster, user, harness.AsJSON(t, automatic), create, harness.HeldBy,
			"(subscription/approval)", "write Manual")
		harness.Kubectl(t, e.Cluster, user, harness.AsJSON(t, manual), "create", "--dry-run=server", "-f", "-")
	}
	t.Cleanup(func() { e.Remove(t, automatic) })
	harness.Kubectl(t, e.Cluster, cluster.OLM, harness.AsJSON(t, automatic), create...)
	if got := approvalOf(e.Stored(t, automatic)); got != "Manual" {
		t.Errorf("approval is %q", got)
	}
}
