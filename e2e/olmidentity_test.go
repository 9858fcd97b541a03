package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/e2e/cluster"
)

const (
	// openShiftNamespace is where OpenShift has OLM, and where nothing is on the clusters of these tests.
	openShiftNamespace = "openshift-operator-lifecycle-manager"
	olmAccount         = "olm-operator-serviceaccount"
)

// projectOwner is what whoever has created a project gets in it, as far as the attack needs it.
const projectOwner = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: opgate-e2e-project-owner}
rules:
  - {apiGroups: [""], resources: [serviceaccounts, serviceaccounts/token], verbs: [get, create, delete]}
  - {apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: [get, create]}
  - {apiGroups: [operators.coreos.com], resources: [clusterserviceversions], verbs: [get, create, update, patch]}
`

// ownedByTenant makes a namespace a project of the tenant.
const ownedByTenant = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: project-owner, namespace: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: opgate-e2e-project-owner}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}]
`

// newProject creates a namespace as a self-service does for whoever asks, if it does not exist.
func (e *env) newProject(t *testing.T, namespace string) {
	t.Helper()
	admin := func(manifest string) { kubectl(t, e.Cluster, cluster.Admin, manifest, "apply", "-f", "-") }
	admin(projectOwner)
	admin(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", namespace))
	admin(fmt.Sprintf(ownedByTenant, namespace))
}

// impostor is the attack as it was reported: the tenant creates OLM's account in a namespace of its own, lends it the tenant's role
// where it is to write, and takes its token.
func (e *env) impostor(t *testing.T, home, target string) *client {
	t.Helper()
	e.newProject(t, home)
	kubectl(t, e.Cluster, cluster.Admin, fmt.Sprintf(ownedByTenant, target), "apply", "-f", "-")
	eventually(t, "the tenant owns its projects", func(ctx context.Context) error {
		for _, namespace := range []string{home, target} {
			result, err := e.Kubectl(ctx, cluster.Tenant, "", "auth", "can-i", "create", "rolebindings", "-n", namespace)
			if err != nil || result.ExitCode != 0 {
				return fmt.Errorf("not %s: %s %w", namespace, result.Stdout, err)
			}
		}
		return nil
	})
	kubectl(t, e.Cluster, cluster.Tenant, "", "-n", home, "create", "serviceaccount", olmAccount)
	for name, role := range map[string]string{"lend": "opgate-e2e-tenant", "lend-csv": "opgate-e2e-project-owner"} {
		kubectl(t, e.Cluster, cluster.Tenant, "", "-n", target, "create", "rolebinding", name, "--clusterrole="+role, "--serviceaccount="+home+":"+olmAccount)
	}
	c := e.byToken(t, home)
	eventually(t, "the lent role counts", func(ctx context.Context) error {
		got, err := c.send(ctx, request{method: http.MethodGet, path: pathOf(installPlans, target, "", "")})
		if err != nil || !got.ok() {
			return fmt.Errorf("%s %w", got, err)
		}
		return nil
	})
	return c
}

// byToken is a client with a token that the tenant asks for.
func (e *env) byToken(t *testing.T, home string) *client {
	t.Helper()
	config, err := e.RESTConfig(cluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = strings.TrimSpace(kubectl(t, e.Cluster, cluster.Tenant, "", "-n", home, "create", "token", olmAccount))
	c, err := clientOf(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// theft is a write that only OLM may make.
type theft struct {
	name string
	request
}

// thefts are writes by which operators get past a policy on a namespace, with a plan that waits there.
func thefts(t *testing.T, namespace, waiting string) []theft {
	t.Helper()
	encoded := func(u *unstructured.Unstructured) []byte { return []byte(asJSON(t, u)) }
	patch := func(name, path, body string) theft {
		return theft{name, request{method: http.MethodPatch, path: path, contentType: "application/merge-patch+json", body: []byte(body)}}
	}
	forged := plan(namespace, "forged", forbiddenVersion)
	delete(forged.Object, "status")
	steps, err := json.Marshal(map[string]any{"status": map[string]any{"phase": "Installing", "plan": []any{map[string]any{
		"resolving": forbiddenCSV, "status": "Unknown", "resource": map[string]any{
			"group": "rbac.authorization.k8s.io", "version": "v1", "kind": "ClusterRoleBinding", "name": "evil", "sourceName": goodCatalog, "sourceNamespace": "olm",
			"manifest": `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"evil"},` +
				`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"tenant"}]}`,
		}}}}})
	if err != nil {
		t.Fatal(err)
	}
	csv := object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: %s
  namespace: %s
  labels: {olm.copiedFrom: elsewhere}
  annotations: {operatorframework.io/properties: '{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"%s"}}]}'}
spec: {displayName: etcd, version: %s, install: {strategy: deployment, spec: {deployments: []}}}
`, forbiddenCSV, namespace, forbiddenVersion, forbiddenVersion)
	create := func(name, resource string, u *unstructured.Unstructured) theft {
		return theft{name, request{method: http.MethodPost, path: pathOf(olmVersion.WithResource(resource), namespace, "", ""), contentType: "application/json", body: encoded(u)}}
	}
	return []theft{
		create("a plan is forged", "installplans", forged),
		patch("its steps are replaced and started", pathOf(installPlans, namespace, waiting, "status"), string(steps)),
		patch("it is started", pathOf(installPlans, namespace, waiting, "status"), `{"status":{"phase":"Installing"}}`),
		patch("it is approved", pathOf(installPlans, namespace, waiting, ""), `{"spec":{"approved":true}}`),
		create("an operator that looks like a copy", "clusterserviceversions", csv),
		create("a Subscription from another catalog", "subscriptions", subscription(namespace, "foreign", foreignCatalog, "Manual")),
	}
}

// wantTheftsRefused wants a client to be refused what the tenant is, with a text in each refusal.
func (e *env) wantTheftsRefused(t *testing.T, c *client, namespace, waiting, says string) {
	t.Helper()
	for _, theft := range thefts(t, namespace, waiting) {
		own := e.clients[cluster.Tenant].must(t, theft.request)
		got := c.must(t, theft.request)
		if own.refused == "" || !strings.Contains(got.refused, own.refused) || !strings.Contains(got.refused, says) {
			t.Errorf("%s: got %s\nwant what the tenant gets, %s\nwith %q", theft.name, got, own, says)
		}
	}
}

// TestA1ForeignNamespace creates, as a tenant, the account that OLM would have on OpenShift, on a cluster that is none (threat O16).
// Opgate used to trust both names by default.
func TestA1ForeignNamespace(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	waiting := e.put(t, plan(namespace, "waiting", forbiddenVersion))
	e.put(t, policy(namespace))
	e.sync(t)
	impostor := e.impostor(t, openShiftNamespace, namespace)
	e.wantTheftsRefused(t, impostor, namespace, waiting.GetName(), "")
	if got := e.stored(t, waiting).Object["status"].(map[string]any)["phase"]; got != "RequiresApproval" {
		t.Errorf("the plan is in phase %v", got)
	}
	// The OLM that is here goes on.
	kubectl(t, e.Cluster, cluster.OLM, asJSON(t, plan(namespace, "by-olm", forbiddenVersion)), "create", "--dry-run=server", "-f", "-")
	kubectl(t, e.Cluster, cluster.OLM, "", "patch", "installplan", "-n", namespace, waiting.GetName(), "--subresource=status", "--type=merge", "--patch", `{"status":{"message":"by OLM"}}`)
}

// TestA1NamespaceAppearsLater names an account that does not exist when Opgate starts, has a tenant create it, and goes through all that
// an administrator can do about it (threat O16).
func TestA1NamespaceAppearsLater(t *testing.T) {
	e := shared(t)
	namespace := e.newNamespace(t)
	waiting := e.put(t, plan(namespace, "waiting", forbiddenVersion))
	e.put(t, policy(namespace))
	e.sync(t)
	home := "lifecycle-" + rand.String(8)
	options := cluster.GateOptions{OLMIdentity: "system:serviceaccount:" + home + ":" + olmAccount}
	t.Cleanup(func() { e.restart(t, cluster.GateOptions{}) })

	e.restart(t, options) // is ready all the same
	e.wantIdentity(t, "namespace-missing", "namespace "+home+" of OLM does not exist")
	impostor := e.impostor(t, home, namespace)
	uid := kubectl(t, e.Cluster, cluster.Admin, "", "get", "namespace", home, "-o", "jsonpath={.metadata.uid}")
	e.wantIdentity(t, "namespace-younger", "--olm-namespace-uid="+uid)
	e.wantTheftsRefused(t, impostor, namespace, waiting.GetName(), "(gate/olm-identity)")

	t.Run("while no gate answers", func(t *testing.T) {
		// What OLM writes as steps of a plan passes then. The name alone must not.
		if _, err := e.gate.Stop(); err != nil {
			t.Fatal(err)
		}
		for _, theft := range thefts(t, namespace, waiting.GetName()) {
			if got := impostor.must(t, theft.request); got.ok() || !strings.Contains(got.message, "failed calling webhook") {
				t.Errorf("%s: got %s", theft.name, got)
			}
		}
	})

	options.Args = []string{"--olm-namespace-uid=" + uid}
	e.restart(t, options)
	e.wantIdentity(t, "rights-missing", "may not escalate ClusterRoles")
	e.wantTheftsRefused(t, impostor, namespace, waiting.GetName(), "(gate/olm-identity)")

	// From here on it is OLM, which an administrator has installed.
	kubectl(t, e.Cluster, cluster.Admin, "", "create", "clusterrolebinding", home, "--clusterrole=cluster-admin", "--serviceaccount="+home+":"+olmAccount)
	t.Cleanup(func() {
		if _, err := e.Kubectl(context.WithoutCancel(t.Context()), cluster.Admin, "", "delete", "clusterrolebinding", home); err != nil {
			t.Error(err)
		}
	})
	e.wantIdentity(t, "trusted", "")
	dry := func(theft theft) request {
		theft.query = map[string][]string{"dryRun": {"All"}}
		return theft.request
	}
	allowed := func(t *testing.T, c *client) {
		t.Helper()
		for _, theft := range thefts(t, namespace, waiting.GetName())[:2] {
			if got := c.must(t, dry(theft)); !got.ok() {
				t.Errorf("%s, by OLM: got %s", theft.name, got)
			}
		}
	}
	allowed(t, impostor)

	t.Run("the account is deleted and created anew", func(t *testing.T) {
		kubectl(t, e.Cluster, cluster.Admin, "", "-n", home, "delete", "serviceaccount", olmAccount)
		e.wantIdentity(t, "serviceaccount-missing", "service account "+home+"/"+olmAccount+" of OLM does not exist")
		kubectl(t, e.Cluster, cluster.Tenant, "", "-n", home, "create", "serviceaccount", olmAccount)
		e.wantIdentity(t, "trusted", "")
		allowed(t, e.byToken(t, home))
	})
	t.Run("without acknowledgement it stays rejected, whatever it may do", func(t *testing.T) {
		options.Args = nil
		e.restart(t, options)
		e.wantIdentity(t, "namespace-younger", "--olm-namespace-uid="+uid)
		got := e.byToken(t, home).must(t, dry(thefts(t, namespace, waiting.GetName())[0]))
		if !strings.Contains(got.refused, "(plan/create)") || !strings.Contains(got.refused, "--olm-namespace-uid="+uid) {
			t.Errorf("got %s", got)
		}
	})
}

// wantIdentity waits until Opgate says in its metric, its readiness and its log where OLM's identity stands. It is ready either way.
func (e *env) wantIdentity(t *testing.T, reason, problem string) {
	t.Helper()
	value := 0
	if reason == "trusted" {
		value = 1
	}
	sample := fmt.Sprintf("opgate_olm_identity_trusted{reason=%q} %d\n", reason, value)
	eventually(t, "OLM's identity is "+reason, func(ctx context.Context) error {
		if _, body, err := get(ctx, e.gate.MetricsURL()); err != nil || !strings.Contains(body, sample) {
			_, rest, _ := strings.Cut(body, "\nopgate_olm_identity_trusted")
			rest, _, _ = strings.Cut(rest, "\n")
			return fmt.Errorf("the metric is %s (%w)", rest, err)
		}
		return nil
	})
	code, body, err := get(t.Context(), e.gate.HealthURL()+"/readyz")
	if err != nil || code != http.StatusOK || !strings.Contains(body, "[+]olm-identity ok") || !strings.Contains(body, problem) {
		t.Errorf("/readyz says %d %s (%v), want %q", code, body, err, problem)
	}
	log, err := os.ReadFile(e.gate.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	message := "OLM identity rejected"
	if value == 1 {
		message = "OLM identity trusted"
	}
	if !strings.Contains(string(log), `"msg":"`+message+`"`) || !strings.Contains(string(log), `"reason":"`+reason+`"`) {
		t.Errorf("the log does not say %q with %q", message, reason)
	}
}
