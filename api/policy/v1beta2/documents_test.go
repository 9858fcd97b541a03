package v1beta2_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/api/internal/crdtest"
	"github.com/opgate/opgate/api/policy/v1beta2"
)

// designDocuments is how many documents the two designs have for the current dialect: the syntax example
// and the policies of stories 1 to 7 of each, and the status example.
const designDocuments = 17

func documents(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "seed-*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if docs[filepath.Base(file)], err = yaml.YAMLToJSONStrict(text); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if len(docs) != designDocuments {
		t.Fatalf("found %d documents, want %d", len(docs), designDocuments)
	}
	return docs
}

// decode reads an object into the types. It fails on a field that the types do not have.
func decode(t *testing.T, text []byte) *v1beta2.OperatorPolicy {
	t.Helper()
	var policy v1beta2.OperatorPolicy
	crdtest.Decode(t, text, &policy)
	return &policy
}

// Every document of the designs must pass unchanged: through the types and back, and through the schema.
func TestDesignDocuments(t *testing.T) {
	c := loadCRD(t)
	for name, text := range documents(t) {
		t.Run(name, func(t *testing.T) {
			want := crdtest.Object(t, text)

			policy := decode(t, text)
			crdtest.CheckRoundTrip(t, policy, want)

			stored := crdtest.Object(t, text)
			pruned, errs := c.Admit(stored)
			if len(pruned) > 0 {
				t.Errorf("pruned: %v", pruned)
			}
			if len(errs) > 0 {
				t.Errorf("refused: %v", errs)
			}
			if lost := missing("", want, stored); len(lost) > 0 {
				t.Errorf("lost or changed: %v", lost)
			}
		})
	}
}

// missing lists what is in want and not, or not the same, in got. What got has beyond want is defaults.
func missing(path string, want, got any) []string {
	wantMap, isMap := want.(map[string]any)
	gotMap, gotIsMap := got.(map[string]any)
	if !isMap || !gotIsMap {
		if reflect.DeepEqual(want, got) {
			return nil
		}
		return []string{path}
	}
	var lost []string
	for key, value := range wantMap {
		if other, ok := gotMap[key]; ok {
			lost = append(lost, missing(path+"."+key, value, other)...)
		} else {
			lost = append(lost, path+"."+key)
		}
	}
	return lost
}

// The least policy gets the defaults of the designs and nothing else.
func TestSchemaDefaults(t *testing.T) {
	c := loadCRD(t)
	stored := minimal()
	if pruned, errs := c.Admit(stored); len(pruned) > 0 || len(errs) > 0 {
		t.Fatalf("pruned %v, refused %v", pruned, errs)
	}
	want := minimal()
	set(want, "inform", "spec", "remediationAction")
	set(want, map[string]any{
		"operatorGroups":            "DeleteIfUnused",
		"subscriptions":             "Delete",
		"clusterServiceVersions":    "Delete",
		"installPlans":              "Keep",
		"customResourceDefinitions": "Keep",
	}, "spec", "removalBehavior")
	if !reflect.DeepEqual(stored, want) {
		t.Errorf("stored:\n got %v\nwant %v", stored, want)
	}
	// A part that is written keeps its value, and the rest of it is still filled in.
	partial := minimal()
	set(partial, map[string]any{"customResourceDefinitions": "Delete"}, "spec", "removalBehavior")
	set(want, "Delete", "spec", "removalBehavior", "customResourceDefinitions")
	if _, errs := c.Admit(partial); len(errs) > 0 || !reflect.DeepEqual(partial, want) {
		t.Errorf("with one value written: refused %v\n got %v\nwant %v", errs, partial, want)
	}
}

// minimal is the least policy that the schema accepts.
func minimal() map[string]any {
	return map[string]any{
		"apiVersion": v1beta2.GroupVersion.String(),
		"kind":       v1beta2.Kind,
		"metadata":   map[string]any{"name": "etcd", "namespace": "policies"},
		"spec": map[string]any{
			"complianceType":  "musthave",
			"upgradeApproval": "Automatic",
			"subscription":    map[string]any{"name": "etcd", "namespace": "shop"},
		},
	}
}

// set writes a value at a path, making the maps on the way. A nil value removes the field.
func set(obj map[string]any, value any, path ...string) {
	for _, key := range path[:len(path)-1] {
		next, ok := obj[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			obj[key] = next
		}
		obj = next
	}
	last := path[len(path)-1]
	if value == nil {
		delete(obj, last)
		return
	}
	obj[last] = value
}
