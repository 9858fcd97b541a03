package dependency

import (
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// documents are the Policy of the design, one with every field of the public API, and a set with both.
func documents(t *testing.T) map[string]string {
	t.Helper()
	documents := map[string]string{"set": `
apiVersion: policy.open-cluster-management.io/v1beta1
kind: PolicySet
metadata:
  name: set
spec:
  description: what is needed, in order
  policies: [my-complicated-policy, policies.operators]
`}
	for _, name := range []string{"seed-003", "public"} {
		data, err := os.ReadFile("../../api/policy/v1/testdata/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		documents[name] = string(data)
	}
	return documents
}

// TestDependencyDocuments applies Policies and a PolicySet as they are written, again, and by a second tool: defaults
// must not be drift for any of them.
func TestDependencyDocuments(t *testing.T) {
	t.Parallel()
	e := start(t)
	for name, document := range documents(t) {
		t.Run(name, func(t *testing.T) {
			var u unstructured.Unstructured
			if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
				t.Fatal(err)
			}
			u.SetNamespace(e.NewNamespace(t))
			// the API server drops it, and kubectl would go on trying
			unstructured.RemoveNestedField(u.Object, "status")
			t.Cleanup(func() { e.Remove(t, &u) })
			apply := func(args ...string) string {
				t.Helper()
				return strings.TrimSpace(harness.Kubectl(t, e.Cluster, cluster.Admin, harness.AsJSON(t, &u),
					append([]string{"apply", "-f", "-"}, args...)...))
			}
			if out := apply(); !strings.HasSuffix(out, " created") {
				t.Errorf("the first apply says %q", out)
			}
			first := e.Stored(t, &u)
			if out := apply(); !strings.HasSuffix(out, " unchanged") {
				t.Errorf("the second apply says %q", out)
			}
			apply("--server-side", "--field-manager=another")
			after := e.Stored(t, &u)
			want := u.DeepCopy()
			if u.GetKind() == "Policy" {
				want.Object["spec"].(map[string]any)["disabled"] = false
			}
			if after.GetGeneration() != first.GetGeneration() ||
				harness.Normal(after.Object["spec"]) != harness.Normal(want.Object["spec"]) {
				t.Errorf("stored is\n%s\nwant\n%s", harness.Normal(after.Object["spec"]),
					harness.Normal(want.Object["spec"]))
			}
		})
	}
}

// TestDependencyStatus writes what the loop would, and looks at it as people do. Opgate does not run.
func TestDependencyStatus(t *testing.T) {
	t.Parallel()
	e := harness.Vacant(t)
	documents := documents(t)
	for _, test := range []struct {
		document, resource, short string
		columns, row              []string
	}{
		{
			document: "seed-003",
			resource: "policies.policy.open-cluster-management.io",
			short:    "plc",
			columns:  []string{"NAME", "REMEDIATION", "ACTION", "COMPLIANCE", "STATE", "AGE"},
			row:      []string{"my-complicated-policy", "Pending"},
		},
		{
			document: "set",
			resource: "policysets.policy.open-cluster-management.io",
			short:    "plcset",
			columns:  []string{"NAME", "COMPLIANCE", "STATE", "AGE"},
			row:      []string{"set", "Pending"},
		},
	} {
		namespace := e.NewNamespace(t)
		admin := func(stdin string, args ...string) string {
			t.Helper()
			return strings.TrimSpace(harness.Kubectl(t, e.Cluster, cluster.Admin, stdin,
				append(args, "--namespace="+namespace)...))
		}
		created := admin(documents[test.document], "create", "-o", "name", "-f", "-")
		admin("", "patch", created, "--subresource=status", "--type=merge", "--patch",
			`{"status": {"compliant": "Pending", "observedGeneration": 1}}`)
		for _, resource := range []string{test.resource, test.short} {
			table := strings.Split(admin("", "get", resource), "\n")
			if got := strings.Fields(table[0]); !slices.Equal(got, test.columns) {
				t.Errorf("columns of %s are %v, want %v", resource, got, test.columns)
			}
			if got := strings.Fields(table[1]); len(got) != len(test.row)+
				1 || !slices.Equal(got[:len(test.row)], test.row) {
				t.Errorf("the row of %s is %v, want %v and an age", resource, got, test.row)
			}
		}
		harness.WantRefused(t, e.Cluster, cluster.Tenant, "",
			[]string{"get", test.resource, "--namespace=" + cluster.PolicyNamespace}, "cannot list resource")
		harness.WantRefused(t, e.Cluster, cluster.Admin, "",
			[]string{"patch", created, "--namespace=" + namespace, "--subresource=status", "--type=merge",
				"--patch", `{"status": {"conditions": [{"type": "Compliant"}]}}`}, "status.conditions[0].reason")
		admin("", "delete", created)
	}
	for _, field := range []string{"policy.spec.dependencies.namespace",
		"policy.spec.policy-templates.extraDependencies.compliance",
		"policy.status.dependencies.reason", "policy.status.details.history.message", "policyset.spec.policies",
		"policyset.status.statusMessage"} {
		out := harness.Kubectl(t, e.Cluster, cluster.Admin, "", "explain", field)
		if _, description, _ := strings.Cut(out, "DESCRIPTION:"); strings.TrimSpace(description) == "" {
			t.Errorf("kubectl explain %s says\n%s", field, out)
		}
	}
}

// TestDependencySchema writes objects that the API server refuses by their schema, before any webhook is called.
func TestDependencySchema(t *testing.T) {
	t.Parallel()
	e := harness.Vacant(t)
	namespace := e.NewNamespace(t)
	document := documents(t)["seed-003"]
	for name, test := range map[string]struct{ old, new, want string }{
		"a namespace for a ConfigurationPolicy": {
			old:  "name: bar\n",
			new:  "name: bar\n          namespace: elsewhere\n",
			want: "spec.policy-templates[0].extraDependencies[0].namespace: Invalid value",
		},
		"a state that is none": {
			old:  "compliance: NonCompliant",
			new:  "compliance: noncompliant",
			want: `Unsupported value: "noncompliant"`,
		},
		"no kind": {
			old:  "- kind: Policy\n      name:",
			new:  "- name:",
			want: "spec.dependencies[0].kind: Required value",
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(document, test.old, test.new, 1)
			if changed == document {
				t.Fatalf("the document has no %q", test.old)
			}
			harness.WantRefused(t, e.Cluster, cluster.Admin, changed,
				[]string{"create", "--namespace=" + namespace, "-f", "-"}, test.want)
		})
	}
}
