package gate

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
	"github.com/opgate/opgate/e2e/harness"
)

// projectOwner is what any user who has created a project gets in it, as far as the attack needs it.
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

// newProject creates a namespace as a self-service does for any user who asks, if it does not exist.
func newProject(t *testing.T, e *harness.Env, namespace string) {
	t.Helper()
	admin := func(manifest string) { harness.Kubectl(t, e.Cluster, cluster.Admin, manifest, "apply", "-f", "-") }
	admin(projectOwner)
	admin(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", namespace))
	admin(fmt.Sprintf(ownedByTenant, namespace))
}

// impostor is the attack as it was reported: the tenant creates OLM's account in a namespace of its own, lends it the
// tenant's role where it is to write, and takes its token.
func impostor(t *testing.T, e *harness.Env, home, target string) *harness.Client {
	t.Helper()
	newProject(t, e, home)
	harness.Kubectl(t, e.Cluster, cluster.Admin, fmt.Sprintf(ownedByTenant, target), "apply", "-f", "-")
	harness.Eventually(t, "the tenant owns its projects", func(ctx context.Context) error {
		for _, namespace := range []string{home, target} {
			result, err := e.Kubectl(ctx, cluster.Tenant, "", "auth", "can-i", "create", "rolebindings", "-n",
				namespace)
			if err != nil || result.ExitCode != 0 {
				return fmt.Errorf("not %s: %s %w", namespace, result.Stdout, err)
			}
		}
		return nil
	})
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "-n", home, "create", "serviceaccount", harness.OLMAccount)
	for name, role := range map[string]string{"lend": "opgate-e2e-tenant", "lend-csv": "opgate-e2e-project-owner"} {
		harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "-n", target, "create", "rolebinding", name,
			"--clusterrole="+role, "--serviceaccount="+home+":"+harness.OLMAccount)
	}
	c := byToken(t, e, home)
	harness.Eventually(t, "the lent role counts", func(ctx context.Context) error {
		got, err := c.Send(ctx, harness.Request{
			Method: http.MethodGet,
			Path:   harness.PathOf(harness.InstallPlans, target, "", ""),
		})
		if err != nil || !got.OK() {
			return fmt.Errorf("%s %w", got, err)
		}
		return nil
	})
	return c
}

// byToken is a client with a token that the tenant asks for.
func byToken(t *testing.T, e *harness.Env, home string) *harness.Client {
	t.Helper()
	config, err := e.RESTConfig(cluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = strings.TrimSpace(harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "-n", home, "create",
		"token", harness.OLMAccount))
	c, err := harness.ClientOf(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// theft is a write that only OLM may make.
type theft struct {
	name string
	harness.Request
}

// thefts are writes by which operators get past a policy on a namespace, with a plan that waits there.
func thefts(t *testing.T, namespace, waiting string) []theft {
	t.Helper()
	encoded := func(u *unstructured.Unstructured) []byte { return []byte(harness.AsJSON(t, u)) }
	patch := func(name, path, body string) theft {
		return theft{
			name: name,
			Request: harness.Request{
				Method:      http.MethodPatch,
				Path:        path,
				ContentType: "application/merge-patch+json",
				Body:        []byte(body),
			},
		}
	}
	forged := harness.InstallPlan(namespace, "forged", harness.ForbiddenVersion)
	delete(forged.Object, "status")
	steps, err := json.Marshal(map[string]any{"status": map[string]any{"phase": "Installing",
		"plan": []any{map[string]any{
			"resolving": harness.ForbiddenCSV, "status": "Unknown", "resource": map[string]any{
				"group": "rbac.authorization.k8s.io", "version": "v1", "kind": "ClusterRoleBinding", "name": "evil",
				"sourceName": harness.GoodCatalog, "sourceNamespace": "olm",
				"manifest": `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"evil"},` +
					`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"tenant"}]}`,
			}}}}})
	if err != nil {
		t.Fatal(err)
	}
	csv := harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: %s
  namespace: %s
  labels: {olm.copiedFrom: elsewhere}
  annotations: {operatorframework.io/properties: '{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"%s"}}]}'}
spec: {displayName: etcd, version: %s, install: {strategy: deployment, spec: {deployments: []}}}
`, harness.ForbiddenCSV, namespace, harness.ForbiddenVersion, harness.ForbiddenVersion)
	create := func(name, resource string, u *unstructured.Unstructured) theft {
		return theft{
			name: name,
			Request: harness.Request{
				Method:      http.MethodPost,
				Path:        harness.PathOf(harness.OLMVersion.WithResource(resource), namespace, "", ""),
				ContentType: "application/json",
				Body:        encoded(u),
			},
		}
	}
	return []theft{
		create("a plan is forged", "installplans", forged),
		patch("its steps are replaced and started", harness.PathOf(harness.InstallPlans, namespace, waiting, "status"),
			string(steps)),
		patch("it is started", harness.PathOf(harness.InstallPlans, namespace, waiting, "status"),
			`{"status":{"phase":"Installing"}}`),
		patch("it is approved", harness.PathOf(harness.InstallPlans, namespace, waiting, ""),
			`{"spec":{"approved":true}}`),
		create("an operator that looks like a copy", "clusterserviceversions", csv),
		create("a Subscription from another catalog", "subscriptions",
			harness.Subscription(namespace, "foreign", harness.ForeignCatalog, "Manual")),
	}
}

// wantTheftsRefused wants a client to be refused what the tenant is, with a text in each refusal.
func wantTheftsRefused(t *testing.T, e *harness.Env, c *harness.Client, namespace, waiting, says string) {
	t.Helper()
	for _, theft := range thefts(t, namespace, waiting) {
		own := e.Clients[cluster.Tenant].Must(t, theft.Request)
		got := c.Must(t, theft.Request)
		if own.Refused == "" || !strings.Contains(got.Refused, own.Refused) || !strings.Contains(got.Refused, says) {
			t.Errorf("%s: got %s\nwant what the tenant gets, %s\nwith %q", theft.name, got, own, says)
		}
	}
}

// TestA1ForeignNamespace creates, as a tenant, the account that OLM would have on OpenShift, on a cluster that is none
// (threat O16). Opgate used to trust both names by default.
func TestA1ForeignNamespace(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	waiting := e.Put(t, harness.InstallPlan(namespace, "waiting", harness.ForbiddenVersion))
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	impostor := impostor(t, e, harness.OpenShiftNamespace, namespace)
	harness.Afterwards(t, e.Cluster, "-n", harness.OpenShiftNamespace, "delete", "serviceaccount", harness.OLMAccount)
	wantTheftsRefused(t, e, impostor, namespace, waiting.GetName(), "")
	if got := e.Stored(t, waiting).Object["status"].(map[string]any)["phase"]; got != "RequiresApproval" {
		t.Errorf("the plan is in phase %v", got)
	}
	// The OLM that is here goes on.
	harness.Kubectl(t, e.Cluster, cluster.OLM,
		harness.AsJSON(t, harness.InstallPlan(namespace, "by-olm", harness.ForbiddenVersion)), "create",
		"--dry-run=server", "-f", "-")
	e.Patch(t, cluster.OLM, waiting, `{"status":{"message":"by OLM"}}`, "status")
}

// TestA1NamespaceAppearsLater names an account that does not exist when Opgate starts, has a tenant create it, and goes
// through all that an administrator can do about it (threat O16).
func TestA1NamespaceAppearsLater(t *testing.T) {
	e := harness.SharedWithoutBackstop(t) // its words are those of the webhooks
	namespace := e.NewNamespace(t)
	waiting := e.Put(t, harness.InstallPlan(namespace, "waiting", harness.ForbiddenVersion))
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	home := "lifecycle-" + rand.String(8)
	options := cluster.GateOptions{OLMIdentity: "system:serviceaccount:" + home + ":" + harness.OLMAccount,
		WithoutBackstop: true}

	e.Restart(t, options) // is ready all the same
	wantIdentity(t, e, "namespace-missing", "namespace "+home+" of OLM does not exist")
	impostor := impostor(t, e, home, namespace)
	uid := harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", "namespace", home, "-o", "jsonpath={.metadata.uid}")
	wantIdentity(t, e, "namespace-younger", "--olm-namespace-uid="+uid)
	wantTheftsRefused(t, e, impostor, namespace, waiting.GetName(), "(gate/olm-identity)")

	t.Run("while no gate answers", func(t *testing.T) {
		// What OLM writes as steps of a plan passes then. The name alone must not.
		if _, err := e.Gate.Stop(); err != nil {
			t.Fatal(err)
		}
		for _, theft := range thefts(t, namespace, waiting.GetName()) {
			if got := impostor.Must(t, theft.Request); got.OK() ||
				!strings.Contains(got.Message, "failed calling webhook") {
				t.Errorf("%s: got %s", theft.name, got)
			}
		}
	})

	options.Args = []string{"--olm-namespace-uid=" + uid}
	e.Restart(t, options)
	wantIdentity(t, e, "rights-missing", "may not escalate ClusterRoles")
	wantTheftsRefused(t, e, impostor, namespace, waiting.GetName(), "(gate/olm-identity)")

	// From here on it is OLM, which an administrator has installed.
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "clusterrolebinding", home,
		"--clusterrole=cluster-admin", "--serviceaccount="+home+":"+harness.OLMAccount)
	t.Cleanup(func() {
		if _, err := e.Kubectl(context.WithoutCancel(t.Context()), cluster.Admin, "", "delete", "clusterrolebinding",
			home); err != nil {
			t.Error(err)
		}
	})
	wantIdentity(t, e, "trusted", "")
	dry := func(theft theft) harness.Request {
		theft.Query = map[string][]string{"dryRun": {"All"}}
		return theft.Request
	}
	allowed := func(t *testing.T, c *harness.Client) {
		t.Helper()
		for _, theft := range thefts(t, namespace, waiting.GetName())[:2] {
			if got := c.Must(t, dry(theft)); !got.OK() {
				t.Errorf("%s, by OLM: got %s", theft.name, got)
			}
		}
	}
	allowed(t, impostor)

	t.Run("the account is deleted and created anew", func(t *testing.T) {
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "-n", home, "delete", "serviceaccount", harness.OLMAccount)
		wantIdentity(t, e, "serviceaccount-missing", "service account "+home+"/"+harness.OLMAccount+
			" of OLM does not exist")
		harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "-n", home, "create", "serviceaccount", harness.OLMAccount)
		wantIdentity(t, e, "trusted", "")
		allowed(t, byToken(t, e, home))
	})
	t.Run("without acknowledgement it stays rejected, whatever it may do", func(t *testing.T) {
		options.Args = nil
		e.Restart(t, options)
		wantIdentity(t, e, "namespace-younger", "--olm-namespace-uid="+uid)
		// It is born approved: pending plans are not sent where the account has OLM's name and may escalate
		// ClusterRoles.
		forged := harness.WithField(harness.InstallPlan(namespace, "forged", harness.ForbiddenVersion), true, "spec",
			"approved")
		got := byToken(t, e, home).Must(t, dry(theft{Request: harness.Request{
			Method: http.MethodPost, Path: harness.PathOf(harness.InstallPlans, namespace, "", ""),
			ContentType: "application/json", Body: []byte(harness.AsJSON(t, forged)),
		}}))
		if !strings.Contains(got.Refused, "(plan/create)") ||
			!strings.Contains(got.Refused, "--olm-namespace-uid="+uid) {
			t.Errorf("got %s", got)
		}
	})
}

// wantIdentity waits until Opgate states in its metric, its readiness and its log the state of OLM's identity. It is
// ready either way.
func wantIdentity(t *testing.T, e *harness.Env, reason, problem string) {
	t.Helper()
	value := 0
	if reason == "trusted" {
		value = 1
	}
	sample := fmt.Sprintf("opgate_olm_identity_trusted{reason=%q} %d\n", reason, value)
	harness.Eventually(t, "OLM's identity is "+reason, func(ctx context.Context) error {
		if _, body, err := harness.GetURL(ctx, e.Gate.MetricsURL()); err != nil || !strings.Contains(body, sample) {
			_, rest, _ := strings.Cut(body, "\nopgate_olm_identity_trusted")
			rest, _, _ = strings.Cut(rest, "\n")
			return fmt.Errorf("the metric is %s (%w)", rest, err)
		}
		return nil
	})
	code, body, err := harness.GetURL(t.Context(), e.Gate.HealthURL()+"/readyz")
	if err != nil || code != http.StatusOK || !strings.Contains(body, "[+]olm-identity ok") ||
		!strings.Contains(body, problem) {
		t.Errorf("/readyz says %d %s (%v), want %q", code, body, err, problem)
	}
	log, err := os.ReadFile(e.Gate.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	message := "OLM identity rejected"
	if value == 1 {
		message = "OLM identity trusted"
	}
	if !strings.Contains(string(log), `"msg":"`+message+`"`) ||
		!strings.Contains(string(log), `"reason":"`+reason+`"`) {
		t.Errorf("the log does not say %q with %q", message, reason)
	}
}
