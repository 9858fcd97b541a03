package admission

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/rules"
)

// scenarioDir holds the scenario files; package e2e reads the same ones.
const scenarioDir = "../e2e/scenarios"

var update = flag.Bool("update", false, "write the answers that the scenarios get into their files; read the diff before you keep it")

// TestScenarios answers the write of every scenario with the same handlers, reviews and patches as a
// server does; package e2e runs the same files with kubectl and a real API server.
func TestScenarios(t *testing.T) {
	scenarios, err := scenario.Load(scenarioDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) { runScenario(t, s) })
	}
}

// TestScenariosCoverRules makes sure that no rule is without a scenario.
func TestScenariosCoverRules(t *testing.T) {
	scenarios, err := scenario.Load(scenarioDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules.Rules() {
		if !slices.ContainsFunc(scenarios, func(s *scenario.Scenario) bool { return slices.Contains(s.Rules, rule.ID) }) {
			t.Errorf("rule %s has no scenario in e2e/scenarios", rule.ID)
		}
	}
}

func runScenario(t *testing.T, s *scenario.Scenario) {
	existing := slices.Concat(s.Cluster, s.Policies)
	gate := newGate(t, storeOf(t, existing...), overrideBy{"admin"})
	old, object := written(t, s, existing)
	got := send(t, gate, s.User, s.Verb == "replace-status", old, object)

	if *update {
		rewrite(t, s, got)
		return
	}
	wantAllowed := s.Decision == rules.Allow.String()
	if got.allowed != wantAllowed {
		t.Errorf("allowed is %v, want %s", got.allowed, s.Decision)
	}
	if diff := cmp.Diff(s.Message, got.message); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(s.Warnings, got.warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	said := got.message + "\n" + strings.Join(got.warnings, "\n")
	for _, id := range s.Rules {
		if !strings.Contains(said, "("+string(id)+")") {
			t.Errorf("rule %s did not speak", id)
		}
	}
	if s.Stored != nil {
		merged, err := jsonpatch.MergePatch(got.object, s.Stored)
		if err != nil {
			t.Fatal(err)
		}
		if !jsonpatch.Equal(merged, got.object) {
			t.Errorf("stored is\n%s\nwant it to have\n%s", got.object, s.Stored)
		}
	}
}

// written works out what a scenario's write makes of the stored object, nil on create, as the API server does.
func written(t *testing.T, s *scenario.Scenario, existing []*unstructured.Unstructured) (old, object *unstructured.Unstructured) {
	t.Helper()
	if s.Verb == "create" {
		return nil, s.Write
	}
	kind, namespace, name := strings.ToLower(s.Kind), s.Namespace, s.Object
	if s.Write != nil {
		kind, namespace, name = strings.ToLower(s.Write.GetKind()), s.Write.GetNamespace(), s.Write.GetName()
	}
	at := slices.IndexFunc(existing, func(u *unstructured.Unstructured) bool {
		return strings.ToLower(u.GetKind()) == kind && u.GetNamespace() == namespace && u.GetName() == name
	})
	if at < 0 {
		t.Fatalf("there is no %s %s/%s to write to", kind, namespace, name)
	}
	old = existing[at]
	switch s.Verb {
	case "replace": // the status is a subresource
		object = s.Write.DeepCopy()
		object.Object["status"] = old.DeepCopy().Object["status"]
	case "replace-status":
		object = old.DeepCopy()
		object.Object["status"] = s.Write.Object["status"]
	case "patch":
		merged, err := jsonpatch.MergePatch(raw(t, old), s.Patch)
		if err != nil {
			t.Fatal(err)
		}
		object = &unstructured.Unstructured{}
		if err := json.Unmarshal(merged, &object.Object); err != nil {
			t.Fatal(err)
		}
	}
	return old, object
}

func raw(t *testing.T, u *unstructured.Unstructured) []byte {
	t.Helper()
	data, err := json.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// rewrite puts the refusal and the warnings that a scenario got into its file. The decision stays: a wrong
// one is for a person to look at.
func rewrite(t *testing.T, s *scenario.Scenario, got outcome) {
	t.Helper()
	path := filepath.Join(scenarioDir, s.Name+".txtar")
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return f.Name == "want" || f.Name == "warnings" })
	want := s.Decision + "\n"
	if got.message != "" {
		want += got.message + "\n"
	}
	archive.Files = append(archive.Files, txtar.File{Name: "want", Data: []byte(want)})
	if len(got.warnings) > 0 {
		archive.Files = append(archive.Files, txtar.File{Name: "warnings", Data: []byte(strings.Join(got.warnings, "\n") + "\n")})
	}
	if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
		t.Fatal(err)
	}
}
