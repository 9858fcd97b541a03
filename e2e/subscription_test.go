package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/e2e/cluster"
)

// TestO3ApprovalBecomesManual asks for automatic approval by every verb of kubectl. OLM approves the plans of an automatic
// Subscription as it writes them, and nobody is asked again.
func TestO3ApprovalBecomesManual(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	e.put(t, policy(namespace))
	e.sync(t)
	manual := subscription(namespace, "etcd", goodCatalog, "Manual")
	automatic := subscription(namespace, "etcd", goodCatalog, "Automatic")
	t.Cleanup(func() { e.remove(t, manual) })
	patch := func(kind, patch string) []string {
		return []string{"patch", "subscription", "-n", namespace, "etcd", "--type=" + kind, "--patch", patch}
	}
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin, cluster.OLM} {
		for _, verb := range []struct {
			args  []string
			fresh bool // there must be no Subscription yet
			stdin bool
		}{
			{args: []string{"create", "-f", "-"}, fresh: true, stdin: true},
			{args: []string{"apply", "-f", "-"}, fresh: true, stdin: true},
			{args: []string{"apply", "-f", "-"}, stdin: true},
			{args: []string{"replace", "-f", "-"}, stdin: true},
			{args: []string{"replace", "--force", "-f", "-"}, stdin: true},
			{args: []string{"apply", "--server-side", "--field-manager=another", "--force-conflicts", "-f", "-"}, stdin: true},
			{args: []string{"apply", "--server-side", "--field-manager=another", "-f", "-"}, fresh: true, stdin: true},
			{args: patch("merge", `{"spec":{"installPlanApproval":"Automatic"}}`)},
			{args: patch("merge", `{"spec":{"installPlanApproval":null}}`)},
			{args: patch("json", `[{"op":"replace","path":"/spec/installPlanApproval","value":"Automatic"}]`)},
			{args: patch("json", `[{"op":"remove","path":"/spec/installPlanApproval"}]`)},
		} {
			name := fmt.Sprintf("kubectl %s as %s", strings.Join(verb.args, " "), user)
			e.remove(t, manual)
			if !verb.fresh {
				if _, err := e.create(t.Context(), manual); err != nil {
					t.Fatal(err)
				}
			}
			stdin := ""
			if verb.stdin {
				stdin = asJSON(t, automatic)
			}
			result, err := e.Kubectl(t.Context(), user, stdin, verb.args...)
			if err != nil {
				t.Fatal(err)
			}
			if result.ExitCode != 0 {
				t.Errorf("%s: exit code %d\n%s", name, result.ExitCode, result.Stderr)
				continue
			}
			if got := approvalOf(e.stored(t, manual)); got != "Manual" {
				t.Errorf("%s: approval is %q", name, got)
			}
			if !strings.Contains(result.Stderr, "Warning: subscription "+namespace+"/etcd: spec.installPlanApproval was changed from ") {
				t.Errorf("%s: there is no warning of the change\n%s", name, result.Stderr)
			}
		}
	}
}

// TestG9NoFightOverApproval lets a second manager apply what the gate has changed, again and again: nothing moves any more.
func TestG9NoFightOverApproval(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	e.put(t, policy(namespace))
	e.sync(t)
	automatic := subscription(namespace, "etcd", goodCatalog, "Automatic")
	t.Cleanup(func() { e.remove(t, automatic) })
	apply := []string{"apply", "--server-side", "--field-manager=gitops", "-f", "-"}
	kubectl(t, e.Cluster, cluster.Tenant, asJSON(t, automatic), apply...)
	first := e.stored(t, automatic)
	for range 2 {
		kubectl(t, e.Cluster, cluster.Tenant, asJSON(t, automatic), apply...)
	}
	if again := e.stored(t, automatic); again.GetGeneration() != first.GetGeneration() || approvalOf(again) != "Manual" {
		t.Errorf("generation went from %d to %d, approval is %q", first.GetGeneration(), again.GetGeneration(), approvalOf(again))
	}
}

// TestO8NothingBorrowed puts every label and annotation that OLM, Opgate or their neighbours read on what is forbidden. Only
// policies say what is allowed.
func TestO8NothingBorrowed(t *testing.T) {
	e := shared(t)
	namespace, free := e.newNamespace(t), e.newNamespace(t)
	e.put(t, policy(namespace))
	e.sync(t)
	keys := []string{
		"opgate.io/ignore", "opgate.io/managed-by", "opgate.io/override", "olm.managed", "olm.copiedFrom",
		"operators.coreos.com/etcd." + free, "policy.open-cluster-management.io/disable-templates",
		"operatorpolicy.policy.open-cluster-management.io/managed", "admission.gatekeeper.sh/ignore", "policies.kyverno.io/ignore",
		"app.kubernetes.io/managed-by", "kubernetes.io/metadata.name", "control-plane",
	}
	marks := map[string]string{}
	for _, key := range keys {
		marks[key] = "true"
	}
	marks["kubernetes.io/metadata.name"] = "opgate-system"
	marks["olm.copiedFrom"] = free
	annotations := map[string]string{"opgate.io/override-reason": "because I say so", "operatorframework.io/properties": `{"properties":[]}`}
	for key, value := range marks {
		annotations[key] = value
	}

	foreign := subscription(namespace, "etcd", foreignCatalog, "Manual")
	foreign.SetLabels(marks)
	foreign.SetAnnotations(annotations)
	refused(t, e.Cluster, cluster.Tenant, asJSON(t, foreign), []string{"create", "-f", "-"}, deniedBy, "(subscription/catalog)")

	p := plan(namespace, "marked", forbiddenVersion)
	p.SetLabels(marks)
	stored := e.put(t, p)
	stored.SetAnnotations(annotations)
	stored.Object["spec"].(map[string]any)["approved"] = true
	refused(t, e.Cluster, cluster.Tenant, asJSON(t, stored), []string{"replace", "-f", "-"}, deniedBy, "(plan/version)", "the override was not accepted")
	if e.stored(t, p).GetAnnotations()["opgate.io/override-reason"] != "" {
		t.Error("a refused write left its annotation")
	}
}

// TestG12NamespaceLabels lets a tenant label its namespace as it likes: it is gated all the same. Only opgate-system is not,
// and a namespace cannot take its name.
func TestG12NamespaceLabels(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	e.put(t, policy(namespace))
	e.sync(t)
	e.grant(t, namespace, cluster.Tenant, "namespaces", "get", "patch", "update")

	for _, label := range []string{
		"opgate.io/ignore=true", "opgate.io/exclude=true", "control-plane=controller-manager", "name=opgate-system",
		"admission.gatekeeper.sh/ignore=no-self-managing", "openshift.io/run-level=0", "olm.operatorgroup.uid/1=",
		"pod-security.kubernetes.io/enforce=privileged", "app.kubernetes.io/name=opgate",
	} {
		kubectl(t, e.Cluster, cluster.Tenant, "", "label", "namespace", namespace, label)
	}
	// The API server sets this one itself, whatever is written.
	kubectl(t, e.Cluster, cluster.Tenant, "", "label", "namespace", namespace, "--overwrite", "kubernetes.io/metadata.name=opgate-system")
	if got := kubectl(t, e.Cluster, cluster.Tenant, "", "get", "namespace", namespace, "-o", `jsonpath={.metadata.labels.kubernetes\.io/metadata\.name}`); got != namespace {
		t.Errorf("the namespace took the name %q", got)
	}
	refused(t, e.Cluster, cluster.Tenant, asJSON(t, subscription(namespace, "etcd", foreignCatalog, "Manual")), []string{"create", "-f", "-"}, deniedBy, "(subscription/catalog)")
	kubectl(t, e.Cluster, cluster.Tenant, "", "label", "namespace", namespace, "kubernetes.io/metadata.name-")
	refused(t, e.Cluster, cluster.Tenant, asJSON(t, subscription(namespace, "etcd", foreignCatalog, "Manual")), []string{"create", "-f", "-"}, deniedBy, "(subscription/catalog)")
}

// grant gives a user verbs on a namespace itself, and waits until it may.
func (e *env) grant(t *testing.T, namespace string, user cluster.User, resource string, verbs ...string) {
	t.Helper()
	name := "e2e-" + namespace
	kubectl(t, e.Cluster, cluster.Admin, "", "create", "role", "-n", namespace, name, "--verb="+strings.Join(verbs, ","), "--resource="+resource)
	kubectl(t, e.Cluster, cluster.Admin, "", "create", "rolebinding", "-n", namespace, name, "--role="+name, "--user="+string(user))
	eventually(t, "wait for the permission", func(context.Context) error {
		got := e.clients[user].must(t, request{
			method: http.MethodPatch, path: "/api/v1/namespaces/" + namespace, query: url.Values{"dryRun": {"All"}},
			contentType: "application/merge-patch+json", body: []byte(`{"metadata":{"labels":{"e2e.opgate.io/granted":"true"}}}`),
		})
		if !got.ok() {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
}

// TestO4AdoptionByOLM lets OLM write metadata and status of objects that do not comply, as it does when it adopts what stood
// there before the policy. Refusing that would stall OLM, and change nothing about what is installed.
func TestO4AdoptionByOLM(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	foreign := e.put(t, subscription(namespace, "foreign", foreignCatalog, "Automatic"))
	forbidden := e.put(t, withPhase(plan(namespace, "forbidden", forbiddenVersion), "Installing", true))
	e.put(t, policy(namespace))
	e.sync(t)
	for _, u := range []struct{ kind, name string }{{"subscription", foreign.GetName()}, {"installplan", forbidden.GetName()}} {
		for _, patch := range []string{
			`{"metadata":{"labels":{"operators.coreos.com/etcd.` + namespace + `":""}}}`,
			`{"metadata":{"annotations":{"olm.generated-by":"forbidden"}}}`,
			`{"metadata":{"ownerReferences":[{"apiVersion":"operators.coreos.com/v1alpha1","kind":"Subscription","name":"foreign","uid":"` + string(foreign.GetUID()) + `"}]}}`,
			`{"metadata":{"finalizers":["e2e.opgate.io/held"]}}`,
			`{"metadata":{"finalizers":null}}`,
		} {
			kubectl(t, e.Cluster, cluster.OLM, "", "patch", u.kind, "-n", namespace, u.name, "--type=merge", "--patch", patch)
		}
	}
	stored := e.stored(t, foreign)
	stored.Object["status"] = map[string]any{"lastUpdated": "2026-11-21T00:00:00Z", "currentCSV": forbiddenCSV, "state": "UpgradePending"}
	if _, err := e.clients[cluster.OLM].of(stored).UpdateStatus(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	stored = e.stored(t, forbidden)
	stored.Object["status"].(map[string]any)["phase"] = "Complete"
	if _, err := e.clients[cluster.OLM].of(stored).UpdateStatus(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if approvalOf(e.stored(t, foreign)) != "Automatic" {
		t.Error("a write of metadata changed the spec")
	}
}

// TestO3DenyMode runs the gate as users of GitOps tools do: what would be changed is refused, and the refusal names the value to
// write. OLM, which cannot be told, is mended all the same.
func TestO3DenyMode(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	e.put(t, policy(namespace))
	e.restart(t, cluster.GateOptions{Args: []string{"--approval-mode=deny"}})
	t.Cleanup(func() { e.restart(t, cluster.GateOptions{}) })
	automatic, manual := subscription(namespace, "etcd", goodCatalog, "Automatic"), subscription(namespace, "etcd", goodCatalog, "Manual")
	create := []string{"create", "-f", "-"}
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		refused(t, e.Cluster, user, asJSON(t, automatic), create, deniedBy, "(subscription/approval)", "write Manual")
		kubectl(t, e.Cluster, user, asJSON(t, manual), "create", "--dry-run=server", "-f", "-")
	}
	t.Cleanup(func() { e.remove(t, automatic) })
	kubectl(t, e.Cluster, cluster.OLM, asJSON(t, automatic), create...)
	if got := approvalOf(e.stored(t, automatic)); got != "Manual" {
		t.Errorf("approval is %q", got)
	}
}
