package v1beta1_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/opgate/opgate/api/internal/crdtest"
	"github.com/opgate/opgate/api/policy/v1beta1"
)

// TestFieldsOfOCM: Opgate's definitions have every field of those of Open Cluster Management, and keep what is added there
// later to a Policy or a PolicySet, which is decided elsewhere. An OperatorPolicy with another field is refused by the gate:
// a field that restricts and is misspelled would restrict nothing.
func TestFieldsOfOCM(t *testing.T) {
	text, err := os.ReadFile("testdata/ocm-fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{"operatorpolicies": v1beta1.Version, "policies": "v1", "policysets": v1beta1.Version}
	for _, list := range txtar.Parse(text).Files {
		c := crdtest.Load(t, "../../..", "policy.open-cluster-management.io_"+list.Name+".yaml", versions[list.Name])
		properties := c.Version.Schema.OpenAPIV3Schema.Properties
		fields := crdtest.Fields(map[string]apiextensionsv1.JSONSchemaProps{"spec": properties["spec"], "status": properties["status"]})
		for path := range strings.FieldsSeq(string(list.Data)) {
			if _, ok := fields[path]; !ok {
				t.Errorf("%s: %s is missing", list.Name, path)
			}
		}
		if list.Name == "operatorpolicies" {
			continue
		}
		for _, path := range []string{"spec", "status", "spec.dependencies[]", "spec.policy-templates[]", "spec.exclusions[]", "status.placement[]",
			"status.status[]"} {
			field, ok := fields[strings.TrimSuffix(path, "[]")]
			if field.Items != nil {
				field = *field.Items.Schema
			}
			if keep := field.XPreserveUnknownFields; ok && (keep == nil || !*keep) {
				t.Errorf("%s: %s does not keep unknown fields", list.Name, path)
			}
		}
	}
}
