package gate

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

const migrationPages = "../../docs/migration/"

// page returns the documents of all YAML blocks of a page on migration, but for those that show how it was before.
func page(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(migrationPages, name))
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		for document := range strings.SplitSeq(block[1], "\n---\n") {
			u := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(document), &u.Object); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			if !strings.HasPrefix(block[1], "# before\n") {
				objects = append(objects, u)
			}
		}
	}
	if len(objects) == 0 {
		t.Fatalf("%s has no YAML", name)
	}
	return objects
}

// TestMigrationPages applies what the pages on migration show, all that is served here: nothing is refused.
func TestMigrationPages(t *testing.T) {
	e := harness.Shared(t)
	files, err := filepath.Glob(migrationPages + "*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			for _, u := range page(t, filepath.Base(file)) {
				switch u.GroupVersionKind().Group {
				case "argoproj.io", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io", "source.toolkit.fluxcd.io":
					continue
				}
				if u.GetNamespace() != "" {
					e.EnsureNamespace(t, u.GetNamespace(), false)
				}
				data, err := yaml.Marshal(u.Object)
				if err != nil {
					t.Fatal(err)
				}
				harness.Kubectl(t, e.Cluster, cluster.Admin, string(data), "apply", "--server-side", "--dry-run=server", "-f", "-")
			}
		})
	}
}

// TestArgoCDHealth runs the health check for Policies on the page on Argo CD.
func TestArgoCDHealth(t *testing.T) {
	var script string
	for _, u := range page(t, "argo-cd.md") {
		if u.GetKind() == "ConfigMap" {
			data, _, err := unstructured.NestedStringMap(u.Object, "data")
			if err != nil {
				t.Fatal(err)
			}
			script = data["resource.customizations.health.policy.open-cluster-management.io_Policy"]
		}
	}
	for status, want := range map[string]string{
		`{compliant = "Compliant"}`: "Healthy", `{compliant = "NonCompliant"}`: "Degraded", `{compliant = "Pending"}`: "Progressing",
		`{}`: "Progressing", `nil`: "Progressing",
	} {
		state := lua.NewState()
		defer state.Close()
		if err := state.DoString("obj = {status = " + status + "}\n" + script); err != nil {
			t.Fatal(err)
		}
		health, ok := state.Get(-1).(*lua.LTable)
		if !ok {
			t.Fatalf("the check returns %s", state.Get(-1))
		}
		if got := health.RawGetString("status").String(); got != want {
			t.Errorf("%s is %s, want %s", status, got, want)
		}
	}
}

// TestFluxHealth evaluates the health check on the page on Flux, for policies as the API server stores them.
func TestFluxHealth(t *testing.T) {
	e := harness.Shared(t)
	expression := ""
	for _, u := range page(t, "flux.md") {
		checks, found, err := unstructured.NestedSlice(u.Object, "spec", "healthCheckExprs")
		if err != nil {
			t.Fatal(err)
		}
		if found {
			expression = checks[0].(map[string]any)["current"].(string)
		}
	}
	environment, err := cel.NewEnv(cel.Variable("metadata", cel.DynType), cel.Variable("status", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	checked, issues := environment.Compile(expression)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := environment.Program(checked)
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[string]bool{"True": true, "False": false} {
		p := harness.OperatorPolicy("flux-" + rand.String(6))
		p.Object["status"] = map[string]any{"observedGeneration": int64(1), "conditions": []any{map[string]any{"type": "Compliant", "status": status,
			"reason": "Compliant", "message": "as written", "lastTransitionTime": "2026-11-22T00:00:00Z"}}}
		stored := e.Put(t, p)
		got, _, err := program.Eval(map[string]any{"metadata": stored.Object["metadata"], "status": stored.Object["status"]})
		if err != nil || got.Value() != want {
			t.Errorf("a policy of which Compliant is %s: %v, %v; want %t", status, got, err, want)
		}
	}
}
