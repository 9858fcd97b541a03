package conversion

import (
	"os"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/crdschema"
)

// TestExternalFields wants the annotation to have each field of v1beta2 that the definition of the governance add-on
// lacks.
func TestExternalFields(t *testing.T) {
	raw, err := os.ReadFile("../e2e/install/testdata/operatorpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition map[string]any
	if err := yaml.Unmarshal(raw, &definition); err != nil {
		t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(definition, "spec", "versions")
	has, _, _ := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec",
		"properties")
	if len(has) < 5 {
		t.Fatalf("the definition has %v", has)
	}
	for _, field := range crdschema.Own(policyv1beta2.GroupVersion.WithKind(policyv1beta2.Kind)).SpecFields() {
		if _, ok := has[field]; ok {
			continue
		}
		if !slices.Contains(carried, field) {
			t.Errorf("spec.%s has no place in the annotation", field)
			continue
		}
		const value = `"x"`
		got := ToV1beta2(map[string]any{"metadata": map[string]any{"annotations": map[string]any{"opgate.io/conversion": `{"` + field + `":` + value + `}`}}, "spec": map[string]any{}})
		if got, _, _ := unstructured.NestedString(got, "spec", field); got != "x" {
			t.Errorf("spec.%s is %q after conversion", field, got)
		}
	}
}
