package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/internal/kept"
	"github.com/opgate/opgate/rules/backstop"
)

// keptObjects are one object of each kind that static policies keep, and a merge patch that would weaken it.
var keptObjects = []struct {
	group, version, kind, namespace, name, patch string
	// content is what the object is created with; "" if something else creates it.
	content string
}{
	{"admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "", "opgate", `{"webhooks":[]}`, ""},
	{"admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "", "opgate", `{"webhooks":[]}`, ""},
	{"admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "", "opgate-backstop",
		`{"spec":{"failurePolicy":"Ignore"}}`, ""},
	{"admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding", "", "opgate-backstop",
		`{"spec":{"validationActions":["Audit"]}}`, ""},
	{"admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy", "", "opgate-backstop",
		`{"spec":{"failurePolicy":"Ignore"}}`, ""},
	{"admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicyBinding", "", "opgate-backstop",
		`{"spec":{"matchResources":{"namespaceSelector":{"matchLabels":{"none":"none"}}}}}`, ""},
	{"admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "", "opgate-unpacked",
		`{"spec":{"failurePolicy":"Ignore"}}`, ""},
	{"rbac.authorization.k8s.io", "v1", "ClusterRole", "", "opgate-kept", `{"rules":[]}`,
		`{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`},
	{"rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "", "opgate-kept", `{"subjects":[]}`,
		`{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"opgate-kept"},"subjects":[{"kind":"User","name":"bob","apiGroup":"rbac.authorization.k8s.io"}]}`},
	{"", "v1", "Namespace", "", cluster.OpgateNamespace, "", ""},
	{"apps", "v1", "Deployment", cluster.OpgateNamespace, "opgate", `{"spec":{"replicas":0}}`,
		`{"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`},
	{"", "v1", "Service", cluster.OpgateNamespace, "opgate-webhook", `{"spec":{"selector":{"a":"other"}}}`,
		`{"spec":{"selector":{"a":"b"},"ports":[{"port":443}]}}`},
	{"", "v1", "ServiceAccount", cluster.OpgateNamespace, "opgate-kept", "", `{}`},
	{"", "v1", "Secret", cluster.OpgateNamespace, "opgate-kept", `{"data":{"key":"b3RoZXI="}}`,
		`{"data":{"key":"a2V5"}}`},
	{"policy", "v1", "PodDisruptionBudget", cluster.OpgateNamespace, "opgate", `{"spec":{"minAvailable":0}}`,
		`{"spec":{"minAvailable":1,"selector":{"matchLabels":{"a":"b"}}}}`},
	{"apiextensions.k8s.io", "v1", "CustomResourceDefinition", "", "operatorpolicies.policy.open-cluster-management.io",
		`{"spec":{"names":{"shortNames":["other"]}}}`, ""},
	{"apiextensions.k8s.io", "v1", "CustomResourceDefinition", "", "constraints.operators.coreos.com",
		`{"spec":{"names":{"shortNames":["other"]}}}`, ""},
}

// TestStaticPolicies: what `opgate compile --static` writes, loaded by the API server from files, keeps Opgate's
// installation from a member of system:masters, for whom there is no RBAC. Its cluster
// is its own, since the API server reads the files when it starts.
func TestStaticPolicies(t *testing.T) {
	t.Parallel()
	static := harness.NewStaticPolicies(t)
	const namespace = cluster.ShopNamespace
	policy := harness.OperatorPolicy(namespace)
	e := harness.Start(t, cluster.Options{Audit: true, Log: os.Stderr, AdmissionConfig: static.Configuration})
	e.StartGate(t, cluster.GateOptions{WithoutBackstop: true})
	config, err := e.RESTConfig(cluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := crclient.New(config, crclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	waiting := e.Put(t, harness.InstallPlan(namespace, "waiting", harness.ForbiddenVersion))
	harness.Kubectl(t, e.Cluster, cluster.Admin, compiled(t, e, policy), "apply", "--server-side", "-f", "-")
	for _, k := range keptObjects {
		if k.content == "" {
			continue
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(
			[]byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"x","metadata":{"name":%q,"namespace":%q},%s`, k.name,
				k.namespace, k.content[1:]))); err != nil {
			if err := u.UnmarshalJSON(
				[]byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"x","metadata":{"name":%q,"namespace":%q}}`, k.name,
					k.namespace))); err != nil {
				t.Fatal(err)
			}
		}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: k.group, Version: k.version, Kind: k.kind})
		if err := admin.Create(t.Context(), u); err != nil && !strings.Contains(err.Error(), "already exists") {
			t.Fatalf("%s %s: %v", k.kind, k.name, err)
		}
	}

	e.Put(t, harness.Object("{apiVersion: v1, kind: ConfigMap, metadata: {name: "+kept.CA+", namespace: %s}}",
		cluster.OpgateNamespace))
	static.Write(t, e, harness.AsJSON(t, policy))
	static.WaitInForce(t, e, true)

	t.Run("nothing is deleted or weakened", func(t *testing.T) {
		for _, k := range keptObjects {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(schema.GroupVersionKind{Group: k.group, Version: k.version, Kind: k.kind})
			key := types.NamespacedName{Namespace: k.namespace, Name: k.name}
			if err := admin.Get(t.Context(), key, u); err != nil {
				t.Fatalf("%s %s: %v", k.kind, k.name, err)
			}
			before := u.DeepCopy()
			refused(t, k.kind+" "+k.name+" deleted", admin.Delete(t.Context(), u), "it cannot be deleted")
			for _, propagation := range []crclient.PropagationPolicy{"Foreground", "Background", "Orphan"} {
				refused(t, k.kind+" "+k.name+" deleted, "+string(propagation),
					admin.Delete(t.Context(), u, propagation), "it cannot be deleted")
			}
			if k.kind != "Namespace" { // which are not deleted as a collection
				refused(t, k.kind+" "+k.name+" deleted with all others",
					admin.DeleteAllOf(t.Context(), u.DeepCopy(), crclient.InNamespace(k.namespace), crclient.DryRunAll),
					"it cannot be deleted")
			}
			refused(t, k.kind+" "+k.name+" given an owner",
				admin.Patch(t.Context(), u, crclient.RawPatch(types.MergePatchType,
					[]byte(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"1"}]}}`))), "only "+harness.Maintainer+" may change it")
			if k.patch != "" {
				refused(t, k.kind+" "+k.name+" replaced", admin.Update(t.Context(), weakened(t, u, k.patch)),
					"only "+harness.Maintainer+" may change it")
				refused(t, k.kind+" "+k.name+" patched",
					admin.Patch(t.Context(), u, crclient.RawPatch(types.MergePatchType, []byte(k.patch))),
					"only "+harness.Maintainer+" may change it")
			}
			if err := admin.Patch(t.Context(), u, crclient.RawPatch(types.MergePatchType,
				[]byte(`{"metadata":{"annotations":{"a":"b"}}}`))); err != nil {
				t.Errorf("%s %s annotated: %v", k.kind, k.name, err)
			}
			if err := admin.Get(t.Context(), key, u); err != nil || u.GetUID() != before.GetUID() ||
				!reflect.DeepEqual(u.Object["spec"], before.Object["spec"]) {
				t.Errorf("%s %s is not what it was: %v", k.kind, k.name, err)
			}
		}
	})
	t.Run("by no way of kubectl", func(t *testing.T) {
		for _, args := range [][]string{
			{"delete", "validatingwebhookconfigurations,mutatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings", "--all"},
			{"delete", "clusterroles", "opgate-kept", "--cascade=orphan"},
			{"delete", "--raw", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"},
			{"delete", "--raw", "/api/v1/namespaces/" + cluster.OpgateNamespace + "/secrets"},
			{"scale", "deployment", "opgate", "-n", cluster.OpgateNamespace, "--replicas=0"},
			{"replace", "--raw", "/api/v1/namespaces/" + cluster.OpgateNamespace + "/finalize", "-f", "-"},
			{"annotate", "deployment", "opgate", "-n", cluster.OpgateNamespace, "a=c", "--overwrite"},
			{"rollout", "restart", "deployment/opgate", "-n", cluster.OpgateNamespace},
		} {
			input := ""
			if args[0] == "replace" {
				input = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + cluster.OpgateNamespace +
					`"},"spec":{"finalizers":[]}}`
			}
			result, err := e.Kubectl(t.Context(), cluster.Admin, input, args...)
			if err != nil {
				t.Fatal(err)
			}
			if harmless := args[0] == "annotate"; harmless != (result.ExitCode == 0) || !harmless &&
				!strings.Contains(result.Stderr, "is kept by files of the control plane") {
				t.Errorf("kubectl %s: %s%s", strings.Join(args, " "), result.Stdout, result.Stderr)
			}
		}
	})
	t.Run("maintainers update, and delete nothing", func(t *testing.T) {
		as := []string{"--as", harness.Maintainer, "--as-group", "system:masters"}
		harness.Kubectl(t, e.Cluster, cluster.Admin, "",
			append([]string{"scale", "deployment", "opgate", "-n", cluster.OpgateNamespace, "--replicas=3"}, as...)...)
		harness.WantRefused(t, e.Cluster, cluster.Admin, "",
			append([]string{"delete", "deployment", "opgate", "-n", cluster.OpgateNamespace}, as...),
			"it cannot be deleted")
	})
	t.Run("Opgate writes its own, the controllers theirs", func(t *testing.T) {
		as := func(user string) []string {
			return []string{"--as", user, "--as-group", "system:masters", "--type=merge"}
		}
		for user, args := range map[string][]string{
			cluster.OpgateUserName: {"patch", "validatingadmissionpolicy", "opgate-backstop", "-p",
				`{"spec":{"validations":null,"auditAnnotations":[{"key":"a","valueExpression":"''"}]}}`,
				"--dry-run=server"},
			"system:serviceaccount:kube-system:deployment-controller": {"patch", "deployment", "opgate", "-n",
				cluster.OpgateNamespace, "-p",
				`{"metadata":{"annotations":{"deployment.kubernetes.io/revision":"2"}}}`},
		} {
			harness.Kubectl(t, e.Cluster, cluster.Admin, "", append(args, as(user)...)...)
		}
	})
	t.Run("other objects are deleted as ever", func(t *testing.T) {
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "clusterrole", "other", "--verb=get",
			"--resource=pods")
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "delete", "clusterrole", "other")
	})
	t.Run("b4: what Opgate records is its own", func(t *testing.T) {
		in := []string{"-n", cluster.OpgateNamespace}
		masters := func(user string, args ...string) []string {
			return append(append(args, in...), "--as", user, "--as-group", "system:masters")
		}
		for _, args := range [][]string{
			{"create", "configmap", kept.Catalogs},
			{"patch", "lease", kept.Lease, "--type=merge", "-p", `{"spec":{"holderIdentity":"b4"}}`},
			{"delete", "lease", kept.Lease},
			{"delete", "configmap", kept.CA},
		} {
			harness.WantRefused(t, e.Cluster, cluster.Admin, "", append(slices.Clone(args), in...), harness.HeldEvidence,
				"for its deletion "+harness.Maintainer)
			if args[0] != "delete" {
				harness.WantRefused(t, e.Cluster, cluster.Admin, "", masters(harness.Maintainer, args...), harness.HeldEvidence)
			}
		}
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", append([]string{"create", "configmap", "kube-root-ca.crt"}, in...)...)
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", masters(cluster.OpgateUserName, "create", "configmap", kept.Catalogs)...)
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", masters(harness.Maintainer, "delete", "configmap", kept.Catalogs)...)
	})
	t.Run("G40: no other server answers for Opgate's kinds", func(t *testing.T) {
		service := []string{"--type=merge", "--dry-run=server", "-p", `{"metadata":{"labels":{"kube-aggregator.kubernetes.io/automanaged":null}},` +
			`"spec":{"service":{"namespace":"a","name":"b"},"insecureSkipTLSVerify":true}}`}
		for _, name := range []string{"v1beta2.policy.open-cluster-management.io", "v1.operators.coreos.com", "v1.admissionregistration.k8s.io",
			"v1.authorization.k8s.io", "v1."} {
			harness.WantRefused(t, e.Cluster, cluster.Admin, "", append([]string{"patch", "apiservice", name}, service...),
				name+" is kept by files of the control plane: it may not name a Service")
		}
		create := func(group string) (string, []string) {
			return `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v9.` + group + `"},"spec":{"group":"` + group +
					`","version":"v9","service":{"namespace":"a","name":"b"},"insecureSkipTLSVerify":true,"groupPriorityMinimum":1,"versionPriority":1}}`,
				[]string{"create", "--dry-run=server", "-f", "-"}
		}
		object, args := create("operators.coreos.com")
		harness.WantRefused(t, e.Cluster, cluster.Admin, object, args, "v9.operators.coreos.com is kept by files of the control plane")
		object, args = create("metrics.k8s.io")
		harness.Kubectl(t, e.Cluster, cluster.Admin, object, args...)
	})
	t.Run("the rules hold from the files", func(t *testing.T) {
		harness.WantRefused(t, e.Cluster, cluster.Admin, "",
			[]string{"patch", "installplan", "-n", namespace, waiting.GetName(), "--type=merge", "-p",
				`{"spec":{"approved":true}}`},
			"(bundle/version)", "held by the API server")
	})
	t.Run("a probe says which set is loaded", func(t *testing.T) {
		harness.WantRefused(t, e.Cluster, cluster.Admin,
			`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"`+
				backstop.ProbeLease+`","namespace":"`+
				cluster.OpgateNamespace+`"}}`, []string{"create", "-f", "-"}, backstop.ProbeAnswer)
		verified(t, e, "static policies are in force: set ")
	})
	t.Run("policies are kept where that is asked for", func(t *testing.T) {
		deleteAll := []string{"delete", "operatorpolicies,constraints", "-A", "--all"}
		if err := admin.Create(t.Context(), policy.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		static.Write(t, e, harness.AsJSON(t, policy), "--keep-policies")
		harness.Eventually(t, "see policies kept", func(ctx context.Context) error {
			result, err := e.Kubectl(ctx, cluster.Admin, "", append(slices.Clone(deleteAll), "--dry-run=server")...)
			if err == nil && result.ExitCode == 0 {
				err = errors.New("the deletion is admitted")
			}
			return err
		})
		harness.WantRefused(t, e.Cluster, cluster.Admin, "", deleteAll,
			"is kept by files of the control plane: only "+harness.Maintainer+" may change or delete it")
		stored := e.Stored(t, policy)
		refused(t, "an edit", admin.Patch(t.Context(), stored,
			crclient.RawPatch(types.MergePatchType, []byte(`{"spec":{"remediationAction":"inform"}}`))),
			"may change or delete it")
		wantKeysKept(t, e, waiting, stored)
		documents := strings.Split(compiled(t, e, harness.WithField(policy.DeepCopy(), "Deny", "spec", "deletion")), "\n---\n")
		for _, file := range static.Loaded {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			documents = append(documents, strings.Split(string(text), "\n---\n")...)
		}
		wantVersions(t, e, documents)
		if err := admin.Patch(t.Context(), stored, crclient.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"example.com/a":"b"}}}`))); err != nil {
			t.Errorf("annotated: %v", err)
		}
	})
	t.Run("a damaged file changes nothing", func(t *testing.T) {
		// An edit in place empties the file first, and an empty set is a good one: files are replaced.
		damaged := filepath.Join(t.TempDir(), "damaged")
		if err := errors.Join(os.WriteFile(damaged, []byte("kind: Nothing\n"), 0o600),
			os.Rename(damaged, static.Loaded[0])); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "see the API server count the failure", func(ctx context.Context) error {
			result, err := e.Kubectl(ctx, cluster.Admin, "", "get", "--raw", "/metrics")
			if err == nil && !slices.ContainsFunc(strings.Split(result.Stdout, "\n"), func(line string) bool {
				return strings.HasPrefix(line,
					"apiserver_manifest_admission_config_controller_automatic_reloads_total{") && strings.Contains(line,
					`status="failure"`)
			}) {
				err = errors.New("there is no failure")
			}
			return err
		})
		static.WaitInForce(t, e, true)
	})
	t.Run("without the files everything is as ever", func(t *testing.T) {
		static.Remove(t)
		static.WaitInForce(t, e, false)
		verified(t, e, "no static policies of Opgate are in force at the API server that answered")
	})
}

// weakened returns an object with a merge patch.
func weakened(t *testing.T, u *unstructured.Unstructured, patch string) *unstructured.Unstructured {
	t.Helper()
	var changes map[string]any
	if err := json.Unmarshal([]byte(patch), &changes); err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: harness.MergePatch(u.DeepCopy().Object, changes).(map[string]any)}
}

// verified wants something in the output of `opgate verify --static`.
func verified(t *testing.T, e *harness.Env, want string) {
	t.Helper()
	out, _ := exec.CommandContext(t.Context(), harness.Opgate(t, e.Cluster), "verify", "--static", "--kubeconfig",
		e.Kubeconfig()).CombinedOutput()
	if !strings.Contains(string(out), want) {
		t.Errorf("opgate verify --static: %s, want %q", out, want)
	}
}

// refused wants an error that the API server answered for a static policy.
func refused(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), "is kept by files of the control plane") {
		if meta.IsNoMatchError(err) {
			t.Fatal(err)
		}
		t.Errorf("%s: %v, want a refusal with %q", what, err, want)
	}
}
