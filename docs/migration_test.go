package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"
)

// migration returns the objects in the YAML blocks of a page on migration.
func migration(t *testing.T, name string) (objects []map[string]any) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(
		document(t, path.Join("migration", name)), -1) {
		for text := range strings.SplitSeq(block[1], "\n---\n") {
			var object map[string]any
			if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
			objects = append(objects, object)
		}
	}
	return objects
}

// TestArgoCDHealth runs the health check for Policies on the page on Argo CD.
func TestArgoCDHealth(t *testing.T) {
	script := ""
	for _, object := range migration(t, "argo-cd.md") {
		if object["kind"] == "ConfigMap" {
			script, _ = object["data"].(map[string]any)["resource.customizations.health.policy.open-cluster-management.io_Policy"].(string)
		}
	}
	for status, want := range map[string]string{
		`{compliant = "Compliant"}`: "Healthy", `{compliant = "NonCompliant"}`: "Degraded",
		`{compliant = "Pending"}`: "Progressing",
		`{}`:                      "Progressing", `nil`: "Progressing",
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

// TestFluxHealth evaluates the health check on the page on Flux.
func TestFluxHealth(t *testing.T) {
	expression := ""
	for _, object := range migration(t, "flux.md") {
		if checks, ok := object["spec"].(map[string]any)["healthCheckExprs"].([]any); ok {
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
	for _, tc := range []struct {
		name, compliant      string
		generation, observed int64
		want                 bool
	}{
		{name: "compliant", compliant: "True", generation: 1, observed: 1, want: true},
		{name: "not compliant", compliant: "False", generation: 1, observed: 1},
		{name: "compliant before the last edit", compliant: "True", generation: 2, observed: 1},
	} {
		got, _, err := program.Eval(map[string]any{
			"metadata": map[string]any{"generation": tc.generation},
			"status": map[string]any{
				"observedGeneration": tc.observed,
				"conditions":         []any{map[string]any{"type": "Compliant", "status": tc.compliant}},
			},
		})
		if err != nil || got.Value() != tc.want {
			t.Errorf("%s: %v, %v; want %t", tc.name, got, err, tc.want)
		}
	}
}
