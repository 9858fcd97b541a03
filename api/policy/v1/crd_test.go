package v1_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/opgate/opgate/api/internal/crdtest"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
)

func loadCRD(t *testing.T) *crdtest.CRD {
	t.Helper()
	return crdtest.Load(t, "../../..", "policy.open-cluster-management.io_policies.yaml", policyv1.Version)
}

func TestCRDIsAccepted(t *testing.T) { loadCRD(t).CheckAccepted(t) }

// TestCRDIdentity holds the definition to the public one, which other tools know.
func TestCRDIdentity(t *testing.T) {
	c := loadCRD(t)
	want := apiextensionsv1.CustomResourceDefinitionNames{
		Plural: "policies", Singular: "policy", ShortNames: []string{"plc"}, Kind: "Policy", ListKind: "PolicyList",
		Categories: []string{"opgate"},
	}
	if diff := cmp.Diff(want, c.V1.Spec.Names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if got := []string{policyv1.Group, policyv1.Kind, policyv1.Resource}; !reflect.DeepEqual(got,
		[]string{c.V1.Spec.Group, want.Kind, want.Plural}) {
		t.Errorf("the constants are %v", got)
	}
	if c.V1.Spec.Scope != apiextensionsv1.NamespaceScoped || len(c.V1.Spec.Versions) != 1 {
		t.Errorf("scope is %s, and there are %d versions", c.V1.Spec.Scope, len(c.V1.Spec.Versions))
	}
	if !c.Version.Storage || !c.Version.Served || c.Version.Subresources == nil ||
		c.Version.Subresources.Status == nil {
		t.Errorf("version %s is not stored, not served, or has no status subresource", c.Version.Name)
	}
	if c.V1.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
		t.Errorf("conversion is by %s, which needs a webhook", c.V1.Spec.Conversion.Strategy)
	}
	if c.V1.Labels["policy.open-cluster-management.io/policy-type"] != "" {
		t.Error("a Policy can be a template of another one")
	}
}

func TestPrinterColumns(t *testing.T) {
	want := [][3]string{
		{"Remediation action", "string", ".spec.remediationAction"},
		{"Compliance state", "string", ".status.compliant"},
		{"Age", "date", ".metadata.creationTimestamp"},
	}
	var got [][3]string
	for _, column := range loadCRD(t).Version.AdditionalPrinterColumns {
		got = append(got, [3]string{column.Name, column.Type, column.JSONPath})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
}

func TestEveryFieldIsDescribed(t *testing.T) {
	properties := loadCRD(t).Version.Schema.OpenAPIV3Schema.Properties
	fields := crdtest.Fields(map[string]apiextensionsv1.JSONSchemaProps{"spec": properties["spec"],
		"status": properties["status"]})
	for path, field := range fields {
		if field.Description == "" {
			t.Errorf("%s has no description", path)
		}
	}
	if len(fields) < 60 {
		t.Errorf("there are %d fields, so not all of them were seen", len(fields))
	}
}

// TestPublicFields wants every field of the public Policy API, under its name and with its type: what reads or writes
// Policies there does so here.
func TestPublicFields(t *testing.T) {
	dependency := map[string]string{"apiVersion": "string", "kind": "string", "name": "string", "namespace": "string",
		"compliance": "string"}
	want := map[string]string{
		"spec":                    "object",
		"spec.disabled":           "boolean",
		"spec.copyPolicyMetadata": "boolean",
		"spec.hubTemplateOptions": "object",
		"spec.hubTemplateOptions.serviceAccountName": "string",
		"spec.remediationAction":                     "string",
		"spec.dependencies":                          "array",
		"spec.policy-templates":                      "array",
		"spec.policy-templates[].objectDefinition":   "object",
		"spec.policy-templates[].ignorePending":      "boolean",
		"spec.policy-templates[].extraDependencies":  "array",
		"status":                                          "object",
		"status.compliant":                                "string",
		"status.details":                                  "array",
		"status.details[].templateMeta":                   "object",
		"status.details[].compliant":                      "string",
		"status.details[].history":                        "array",
		"status.details[].history[].lastTimestamp":        "string",
		"status.details[].history[].message":              "string",
		"status.details[].history[].eventName":            "string",
		"status.status":                                   "array",
		"status.status[].compliant":                       "string",
		"status.status[].clustername":                     "string",
		"status.status[].clusternamespace":                "string",
		"status.placement":                                "array",
		"status.placement[].placement":                    "string",
		"status.placement[].placementBinding":             "string",
		"status.placement[].placementRule":                "string",
		"status.placement[].policySet":                    "string",
		"status.placement[].decisions":                    "array",
		"status.placement[].decisions[].clusterName":      "string",
		"status.placement[].decisions[].clusterNamespace": "string",
	}
	for name, kind := range dependency {
		want["spec.dependencies[]."+name] = kind
		want["spec.policy-templates[].extraDependencies[]."+name] = kind
	}
	fields := crdtest.Fields(loadCRD(t).Version.Schema.OpenAPIV3Schema.Properties)
	for path, kind := range want {
		if got := fields[path].Type; got != kind {
			t.Errorf("%s is a %q, want %s", path, got, kind)
		}
	}
	for _, path := range []string{"spec.policy-templates[].objectDefinition", "status.details[].templateMeta"} {
		if keep := fields[path].XPreserveUnknownFields; keep == nil || !*keep {
			t.Errorf("%s does not keep what is in it", path)
		}
	}
	if got := fields["status.details[].history[].lastTimestamp"].Format; got != "date-time" {
		t.Errorf("the format of lastTimestamp is %q", got)
	}
	for path, words := range map[string][]string{
		"spec.remediationAction":                                 {"Inform", "inform", "Enforce", "enforce"},
		"spec.dependencies[].compliance":                         {"Compliant", "Pending", "NonCompliant"},
		"spec.policy-templates[].extraDependencies[].compliance": {"Compliant", "Pending", "NonCompliant"},
		"status.compliant":                                       {"Compliant", "Pending", "NonCompliant"},
	} {
		if diff := cmp.Diff(words, crdtest.Enum(t, fields[path])); diff != "" {
			t.Errorf("values of %s (-want +got):\n%s", path, diff)
		}
	}
}
