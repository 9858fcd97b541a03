package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/internal/metakey"
)

// TestBackstop: what `opgate compile` prints holds the core of the gate on a cluster where no Opgate runs and no
// webhook is registered.
func TestBackstop(t *testing.T) {
	t.Parallel()
	e := harness.Vacant(t)
	const namespace = cluster.ShopNamespace
	policy := harness.OperatorPolicy(namespace)
	objects := compiled(t, e, policy)
	harness.Kubectl(t, e.Cluster, cluster.Admin, objects, "apply", "--server-side", "-f", "-")
	waiting := e.Put(t, harness.InstallPlan(namespace, "waiting", harness.ForbiddenVersion))
	approve := []string{"patch", "installplan", "-n", namespace, "waiting", "--type=merge", "--patch",
		`{"spec":{"approved":true}}`}
	// The API server reads new policies within a second.
	harness.Eventually(t, "see the approval refused", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, "", append(approve, "--dry-run=server")...)
		if err == nil && result.ExitCode == 0 {
			err = errors.New("it is admitted")
		}
		return err
	})

	t.Run("a forbidden version is not approved", func(t *testing.T) {
		for _, user := range []cluster.User{cluster.Tenant, cluster.Admin, cluster.OLM} {
			harness.WantRefused(t, e.Cluster, user, "", approve, "(Forbidden)", "installplan "+namespace+"/waiting: ",
				harness.ForbiddenVersion,
				"is not allowed by OperatorPolicy policies/"+namespace+" (bundle/version): allowed is "+
					harness.AllowedCSV, "held by the API server")
		}
	})
	t.Run("nor moved, by a cluster admin either", func(t *testing.T) {
		harness.WantRefused(t, e.Cluster, cluster.Admin, "",
			[]string{"patch", "installplan", "-n", namespace, "waiting", "--subresource=status",
				"--type=merge", "--patch", `{"status":{"phase":"Installing"}}`}, "(Forbidden)", "(plan/status-phase)")
	})
	t.Run("nor created by hand", func(t *testing.T) {
		plan := harness.InstallPlan(namespace, "forged", harness.AllowedVersion)
		harness.WantRefused(t, e.Cluster, cluster.Admin, harness.AsJSON(t, plan), []string{"create", "-f", "-"},
			"(Forbidden)", "(plan/create)")
	})
	t.Run("an allowed version is approved", func(t *testing.T) {
		e.Put(t, harness.InstallPlan(namespace, "allowed", harness.AllowedVersion))
		harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "patch", "installplan", "-n", namespace, "allowed",
			"--type=merge", "--patch", `{"spec":{"approved":true}}`)
	})
	t.Run("a Subscription is stored Manual", func(t *testing.T) {
		sub := harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Automatic")
		harness.Kubectl(t, e.Cluster, cluster.Tenant, harness.AsJSON(t, sub), "create", "-f", "-")
		harness.WantField(t, e.Stored(t, sub), `"Manual"`, "spec", "installPlanApproval")
		harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "patch", "subscriptions.operators.coreos.com", "-n",
			namespace, "etcd", "--type=merge", "--patch",
			`{"spec":{"installPlanApproval":"Automatic"}}`)
		harness.WantField(t, e.Stored(t, sub), `"Manual"`, "spec", "installPlanApproval")
	})
	t.Run("an operator does not bypass OLM", func(t *testing.T) {
		harness.WantRefused(t, e.Cluster, cluster.Admin, harness.AsJSON(t, bypassing(namespace)),
			[]string{"create", "-f", "-"}, "(Forbidden)", "(bundle/version)")
	})
	t.Run("an override needs the right to it, and a reason", func(t *testing.T) {
		override := fmt.Sprintf(`{"metadata":{"annotations":{%q:"incident 7"}},"spec":{"approved":true}}`,
			metakey.OverrideReason)
		approve := []string{"patch", "installplan", "-n", namespace, "waiting", "--type=merge", "--patch", override}
		harness.WantRefused(t, e.Cluster, cluster.Tenant, "", approve, "(Forbidden)",
			"the override needs the verb override on operatorpolicies policies/"+namespace)
		harness.WantRefused(t, e.Cluster, cluster.Admin, "",
			[]string{"annotate", "installplan", "-n", namespace, "waiting",
				metakey.OverrideReason + "=incident 7"}, "(Forbidden)", "(plan/override-reason)")
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", approve...)
		harness.WantField(t, e.Stored(t, waiting), `"incident 7"`, "metadata", "annotations",
			metakey.OverrideReason)
	})
	t.Run("the contents of unpacked bundles are OLM's", func(t *testing.T) { unpackedIsKept(t, e) })
	t.Run("other namespaces are left alone", func(t *testing.T) {
		free := e.NewNamespace(t)
		e.Put(t, harness.InstallPlan(free, "free", harness.ForbiddenVersion))
		harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "patch", "installplan", "-n", free, "free", "--type=merge",
			"--patch", `{"spec":{"approved":true}}`)
	})
}

// unpackedIsKept writes the ConfigMap of a bundle as OLM, as its Job and as others.
func unpackedIsKept(t *testing.T, e *harness.Env) {
	namespace := e.NewNamespace(t)
	name := strings.Repeat("0123456789abcdef", 4)[:63]
	job := "system:serviceaccount:" + namespace + ":" + name
	harness.Kubectl(t, e.Cluster, cluster.OLM, harness.AsJSON(t, configMap(namespace, name)), "create", "-f", "-")
	wantContents := func(want string) {
		t.Helper()
		if got := harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", "configmap", "-n", namespace, name, "-o",
			`jsonpath={.data.csv\.yaml}`); got != want {
			t.Errorf("the contents are %q, want %q", got, want)
		}
	}
	// Rights as OLM grants them, and more for another account.
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "role", "-n", namespace, "unpack",
		"--verb=get,update,patch", "--resource=configmaps")
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "rolebinding", "-n", namespace, "unpack",
		"--role=unpack",
		"--serviceaccount="+namespace+":"+name, "--serviceaccount="+namespace+":default")
	patch := func(object, patch string, args ...string) []string {
		return append([]string{"patch", "configmap", "-n", namespace, object, "--type=merge", "--patch", patch},
			args...)
	}
	const contents, forged = `{"data":{"csv.yaml":"unpacked"}}`, `{"data":{"csv.yaml":"forged"}}`
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", patch(name, contents, "--as="+job)...)

	const says = "changing the contents of an unpacked bundle is not allowed: only OLM writes them, and its Job as "
	held := []string{"(Forbidden)", "configmap " + namespace + "/" + name + ": " + says + job,
		"held by the API server (ValidatingAdmissionPolicy opgate-unpacked)"}
	for what, args := range map[string][]string{
		"a cluster admin":     patch(name, forged),
		"the account of pods": patch(name, forged, "--as=system:serviceaccount:"+namespace+":default"),
		"a removed label":     patch(name, `{"metadata":{"labels":null},"data":{"csv.yaml":"forged"}}`),
		"an annotation": patch(name,
			`{"metadata":{"annotations":{"olm.contentEncoding":"gzip+base64"}}}`),
		"a reason without the contents": patch(name, `{"metadata":{"annotations":{"`+metakey.OverrideReason+
			`":" "}},"data":{}}`),
	} {
		t.Run(what, func(t *testing.T) { harness.WantRefused(t, e.Cluster, cluster.Admin, "", args, held...) })
	}
	harness.WantRefused(t, e.Cluster, cluster.Admin, harness.AsJSON(t, configMap(namespace, "f"+name[1:])),
		[]string{"create", "-f", "-"}, "(Forbidden)", says)
	wantContents("unpacked")

	// What others may do: owners and finalizers, as the garbage collector; ConfigMaps that bundles bring; break-glass.
	harness.Kubectl(t, e.Cluster, cluster.Admin, "",
		patch(name, `{"metadata":{"ownerReferences":null,"finalizers":["opgate.io/test"]}}`)...)
	harness.Kubectl(t, e.Cluster, cluster.Admin, harness.AsJSON(t, configMap(namespace, "settings")), "create", "-f",
		"-")
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", patch("settings", forged)...)
	harness.Kubectl(t, e.Cluster, cluster.Admin, "",
		patch(name, `{"metadata":{"annotations":{"`+metakey.OverrideReason+
			`":"incident 7"}},"data":{"csv.yaml":"mended"}}`)...)
	wantContents("mended")
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", patch(name, `{"metadata":{"finalizers":null}}`)...)
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "delete", "configmap", "-n", namespace, name)
}

// configMap is one with OLM's label.
func configMap(namespace, name string) *unstructured.Unstructured {
	return harness.Object(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: %s, name: %q, labels: {olm.managed: "true"}}}`, namespace, name)
}

// bypassing is a ClusterServiceVersion that no plan contains, of a version that no policy allows.
func bypassing(namespace string) *unstructured.Unstructured {
	return harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: etcdoperator.v%[2]s
  namespace: %[1]s
  annotations:
    operatorframework.io/properties: '{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"%[2]s"}}]}'
spec: {displayName: etcd, install: {strategy: deployment}}
`, namespace, harness.ForbiddenVersion)
}

// compiled returns what `opgate compile` prints for policies.
func compiled(t *testing.T, e *harness.Env, policies ...*unstructured.Unstructured) string {
	t.Helper()
	var input []string
	for _, p := range policies {
		input = append(input, harness.AsJSON(t, p))
	}
	cmd := exec.CommandContext(t.Context(), harness.Opgate(t, e.Cluster), "compile", "-f", "-", "--olm-identity",
		"system:serviceaccount:"+cluster.OLMNamespace+":"+harness.OLMAccount)
	cmd.Stdin = strings.NewReader(strings.Join(input, "\n"))
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, problems.String())
	}
	return out.String()
}
