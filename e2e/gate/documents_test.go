package gate

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// seedDocuments are the OperatorPolicies of the designs, word for word but for their names, which differ here.
func seedDocuments(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../../api/policy/v1beta2/testdata/seed-*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatal("there are no seed documents")
	}
	documents := map[string]string{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, document := range strings.Split("\n"+string(data), "\n---\n") {
			name := fmt.Sprintf("%s-%d", strings.TrimSuffix(filepath.Base(path), ".yaml"), i)
			documents[name] = regexp.MustCompile(`(?m)^  name: .*$`).ReplaceAllLiteralString(document, "  name: "+name)
		}
	}
	return documents
}

// TestDocumentsApply applies every OperatorPolicy of the designs as it is written, again, and by a second tool:
// defaults of the gate must not be drift for any of them.
func TestDocumentsApply(t *testing.T) {
	e := harness.SharedWithoutBackstop(t) // which does not matter to what is stored
	documents := seedDocuments(t)
	written, texts := map[string]*unstructured.Unstructured{}, map[string]string{}
	for name, document := range documents {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatal(err)
		}
		if u.GetNamespace() == "" {
			u.SetNamespace(cluster.PolicyNamespace)
		}
		e.EnsureNamespace(t, u.GetNamespace(), false)
		t.Cleanup(func() { e.Remove(t, u) })
		written[name] = u
		texts[u.GetNamespace()] += "\n---\n" + document
	}
	// apply applies all at once, and wants kubectl to say the same of each, but for those with a status: kubectl
	// would like to write it, and the API server drops it.
	apply := func(says string, args ...string) {
		t.Helper()
		for namespace, text := range texts {
			out := harness.Kubectl(t, e.Cluster, cluster.Admin, text,
				append([]string{"apply", "-n", namespace, "-f", "-"}, args...)...)
			for line := range strings.Lines(out) {
				name := regexp.MustCompile(`/(\S+) `).FindStringSubmatch(line)
				if name == nil || written[name[1]] == nil {
					t.Fatalf("kubectl apply says %q", line)
				}
				_, hasStatus := written[name[1]].Object["status"]
				if !strings.HasSuffix(strings.TrimSpace(line), says) && !hasStatus {
					t.Errorf("kubectl apply says %q, want %s", line, says)
				}
			}
		}
	}
	stored := func() map[string]*unstructured.Unstructured {
		now := map[string]*unstructured.Unstructured{}
		for name, u := range written {
			now[name] = e.Stored(t, u)
		}
		return now
	}
	apply(" created")
	first := stored()
	apply(" unchanged")
	second := stored()
	apply("", "--server-side", "--field-manager=another")
	apply("", "--server-side", "--field-manager=another")
	third := stored()
	for name, u := range written {
		first, second, after := first[name], second[name], third[name]
		if second.GetResourceVersion() != first.GetResourceVersion() {
			t.Errorf("the second apply changed the policy from\n%s\nto\n%s", harness.Normal(first.Object),
				harness.Normal(second.Object))
		}
		if after.GetGeneration() != first.GetGeneration() ||
			harness.Normal(after.Object["spec"]) != harness.Normal(first.Object["spec"]) {
			t.Errorf("the spec moved from\n%s\nto\n%s", harness.Normal(first.Object["spec"]),
				harness.Normal(after.Object["spec"]))
		}
		// All that the author wrote is stored as they wrote it.
		if spec := map[string]any{"spec": u.Object["spec"]}; harness.Normal(
			harness.MergePatch(after.Object, spec)) != harness.Normal(after.Object) {
			t.Errorf("stored is\n%s\nwant it to have\n%s", harness.Normal(after.Object["spec"]),
				harness.Normal(u.Object["spec"]))
		}
	}
}

// TestConstraintDocument applies the Constraint of the design as it is written, and the same in v1.
func TestConstraintDocument(t *testing.T) {
	e := harness.Shared(t)
	data, err := os.ReadFile("../../api/constraint/testdata/seed-004-example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const name, written = "cluster-constraints", "operators.coreos.com/v2"
	if !strings.Contains(string(data), written) {
		t.Fatalf("the document is not of %s", written)
	}
	admin := func(stdin string, args ...string) string {
		t.Helper()
		return strings.TrimSpace(harness.Kubectl(t, e.Cluster, cluster.Admin, stdin, args...))
	}
	read := func(t *testing.T, version string) (u unstructured.Unstructured) {
		t.Helper()
		if err := yaml.Unmarshal([]byte(admin("", "get", "constraints."+version+".operators.coreos.com", name, "-o",
			"json")), &u.Object); err != nil {
			t.Fatal(err)
		}
		return u
	}
	for _, version := range []string{"v2", "v1"} {
		t.Run(version, func(t *testing.T) {
			document := strings.ReplaceAll(string(data), written, "operators.coreos.com/"+version)
			var want unstructured.Unstructured
			if err := yaml.Unmarshal([]byte(document), &want.Object); err != nil {
				t.Fatal(err)
			}
			// It binds every namespace: no other test may be judged by it.
			t.Cleanup(func() {
				e.Remove(t, &want)
				e.Sync(t)
			})
			if out := admin(document, "apply", "-f", "-"); !strings.HasSuffix(out, " created") {
				t.Errorf("the first apply says %q", out)
			}
			if out := admin(document, "apply", "-f", "-"); !strings.HasSuffix(out, " unchanged") {
				t.Errorf("the second apply says %q", out)
			}
			admin(document, "apply", "--server-side", "--field-manager=another", "-f", "-")
			for _, other := range []string{"v1", "v2"} {
				got := read(t, other)
				if got.GetAPIVersion() != "operators.coreos.com/"+other ||
					harness.Normal(got.Object["spec"]) != harness.Normal(want.Object["spec"]) {
					t.Errorf("in %s it is\n%s\nwant the spec\n%s", other, harness.Normal(got.Object),
						harness.Normal(want.Object["spec"]))
				}
			}
			admin("", "patch", "constraint", name, "--subresource=status", "--type=merge", "--patch", `{"status": {"violating": 2, "conditions": [
				{"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-11-21T14:42:11Z"}]}}`)
			// The short name is the singular one. Where Gatekeeper has a category of that name, kubectl needs the full
			// name.
			for _, resource := range []string{"constraint", "constraints",
				"constraints." + version + ".operators.coreos.com"} {
				table := strings.Split(admin("", "get", resource, name), "\n")
				if got, want := strings.Fields(table[0]),
					[]string{"NAME", "READY", "VIOLATING", "AGE"}; !slices.Equal(got, want) {
					t.Errorf("columns of %s are %v, want %v", resource, got, want)
				}
				if got, want := strings.Fields(table[1]), []string{name, "True", "2"}; len(got) != 4 ||
					!slices.Equal(got[:3], want) {
					t.Errorf("the row of %s is %v, want %v and an age", resource, got, want)
				}
			}
			// Everybody reads it, and only admins write it.
			if got := strings.TrimSpace(harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "get", "constraints", "-o",
				"name")); got != "constraint.operators.coreos.com/"+name {
				t.Errorf("the tenant sees %q", got)
			}
			harness.WantRefused(t, e.Cluster, cluster.Tenant, "", []string{"delete", "constraint", name},
				`cannot delete resource "constraints"`)
		})
	}
	definition := admin("", "get", "customresourcedefinition", "constraints.operators.coreos.com", "-o",
		`jsonpath={.status.storedVersions} {.status.acceptedNames.shortNames} {.status.conditions[?(@.type=="NamesAccepted")].status}`)
	if want := `["v1"] ["constraint"] True`; definition != want {
		t.Errorf("stored versions, short names and whether they are accepted are %s, want %s", definition, want)
	}
	for _, field := range []string{"spec.constraints", "spec.properties", "status.constraints.violating"} {
		out := admin("", "explain", "constraint."+field)
		if _, description, _ := strings.Cut(out, "DESCRIPTION:"); strings.TrimSpace(description) == "" {
			t.Errorf("kubectl explain constraint.%s says\n%s", field, out)
		}
	}
}

// TestPrinterColumns looks at a policy as people do.
func TestPrinterColumns(t *testing.T) {
	e := harness.Shared(t)
	p := harness.OperatorPolicy("columns-" + rand.String(6))
	p.Object["status"] = map[string]any{"compliant": "NonCompliant", "installedVersion": harness.AllowedCSV}
	stored := e.Put(t, p)
	columns := strings.Fields(strings.Split(harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", "oppol", "-n",
		stored.GetNamespace(), stored.GetName()), "\n")[0])
	if want := []string{"NAME", "COMPLIANCE", "ACTION", "PACKAGE", "INSTALLED", "STATE", "WAITING", "AGE"}; !slices.Equal(columns,
		want) {
		t.Errorf("columns are %v, want %v", columns, want)
	}
	row := strings.Fields(harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", "oppol", "-n", stored.GetNamespace(),
		stored.GetName(), "--no-headers"))
	if want := []string{stored.GetName(), "NonCompliant", "enforce", "etcd", harness.AllowedCSV}; len(row) != 6 ||
		!slices.Equal(row[:5], want) {
		t.Errorf("the row is %v, want %v and an age", row, want)
	}
	explained := harness.Kubectl(t, e.Cluster, cluster.Admin, "", "explain", "operatorpolicy.spec.versionRange")
	_, description, found := strings.Cut(explained, "DESCRIPTION:")
	if description = strings.TrimSpace(description); !found || description == "" ||
		strings.HasPrefix(description, "<empty>") {
		t.Errorf("kubectl explain says\n%s", explained)
	}
}

// TestUnknownFields misspells fields. They are refused with their path, however lenient kubectl is asked to be: a
// policy that silently loses a field lets through what its author forbade.
func TestUnknownFields(t *testing.T) {
	e := harness.Shared(t)
	for path, set := range map[string]map[string]any{ // merge patches of the spec
		"spec.subscription.chanel": {"subscription": map[string]any{"chanel": "stable"}},
		"spec.operatorGroup.targetNamespace": {"operatorGroup": map[string]any{"name": "group",
			"targetNamespace": "shop"}},
		"spec.operatorGroup.target.namespace": {"operatorGroup": map[string]any{"name": "group",
			"target": map[string]any{"namespace": "shop"}}},
		"spec.version":                   {"version": []any{harness.AllowedCSV}},
		"spec.Versions":                  {"Versions": []any{harness.AllowedCSV}},
		"spec.removalBehavior.plans":     {"removalBehavior": map[string]any{"plans": "Keep"}},
		"spec.complianceConfig.upgrades": {"complianceConfig": map[string]any{"upgrades": "Compliant"}},
		"spec.statusConfig.upgrades":     {"statusConfig": map[string]any{"upgrades": "Condition"}},
	} {
		// kubectl sends Strict, Warn and Ignore for --validate=true, warn and ignore.
		for _, validation := range []string{metav1.FieldValidationStrict, metav1.FieldValidationWarn,
			metav1.FieldValidationIgnore} {
			t.Run(path+" "+validation, func(t *testing.T) {
				p := harness.OperatorPolicy("unknown-" + rand.String(6))
				p.Object["spec"] = harness.MergePatch(p.Object["spec"], set)
				t.Cleanup(func() { e.Remove(t, p) })
				_, err := e.Clients[cluster.Admin].Of(p).Create(t.Context(), p,
					metav1.CreateOptions{FieldValidation: validation})
				if want := `unknown field "` + path + `"`; err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got error %v, want %q in it", err, want)
				}
			})
		}
	}
	p := harness.OperatorPolicy("unknown-" + rand.String(6))
	p.Object["spec"].(map[string]any)["version"] = []any{harness.AllowedCSV}
	t.Cleanup(func() { e.Remove(t, p) })
	harness.WantRefused(t, e.Cluster, cluster.Admin, harness.AsJSON(t, p),
		[]string{"apply", "--validate=false", "-f", "-"},
		`unknown field "spec.version"`)
}

// TestNormalizedTwice sends a stored policy back unchanged, as tools do which read and write whole objects: nothing is
// written.
func TestNormalizedTwice(t *testing.T) {
	e := harness.Shared(t)
	stored := e.Put(t, harness.OperatorPolicy("twice-"+rand.String(6)))
	for range 2 {
		got := e.Clients[cluster.Admin].Must(t, harness.Request{
			Method: http.MethodPut, Path: harness.PathOf(harness.OperatorPolicies, stored.GetNamespace(),
				stored.GetName(), ""),
			ContentType: "application/json", Body: []byte(harness.AsJSON(t, stored)),
		})
		if !got.OK() || got.Object().GetResourceVersion() != stored.GetResourceVersion() {
			t.Errorf("a write of what is stored changed it: %s", got)
		}
	}
}
