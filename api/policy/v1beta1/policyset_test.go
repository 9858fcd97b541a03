package v1beta1_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/api/internal/crdtest"
	"github.com/opgate/opgate/api/policy/v1beta1"
)

func loadPolicySetCRD(t *testing.T) *crdtest.CRD {
	t.Helper()
	return crdtest.Load(t, "../../..", "policy.open-cluster-management.io_policysets.yaml", v1beta1.Version)
}

// policySet is one with every field of the public API, and with those that Opgate adds.
func policySet() map[string]any {
	return map[string]any{
		"apiVersion": v1beta1.GroupVersion.String(),
		"kind":       v1beta1.PolicySetKind,
		"metadata":   map[string]any{"name": "operators", "namespace": "shop"},
		"spec":       map[string]any{"description": "what the shop needs", "policies": []any{"db", "app"}},
		"status": map[string]any{
			"compliant":     "Pending",
			"statusMessage": "Policies awaiting pending dependencies: app",
			"placement":     []any{map[string]any{"placement": "p", "placementBinding": "b", "placementRule": "r"}},

			"observedGeneration": int64(2),
			"conditions": []any{map[string]any{"type": "Compliant", "status": "False", "reason": "Pending",
				"message":            "app",
				"lastTransitionTime": "2026-11-21T14:42:11Z"}},
		},
	}
}

func TestPolicySetCRD(t *testing.T) {
	c := loadPolicySetCRD(t)
	c.CheckAccepted(t)
	want := apiextensionsv1.CustomResourceDefinitionNames{
		Plural: v1beta1.PolicySetResource, Singular: "policyset", ShortNames: []string{"plcset"},
		Kind: v1beta1.PolicySetKind, ListKind: "PolicySetList",
		Categories: []string{"opgate"},
	}
	if diff := cmp.Diff(want, c.V1.Spec.Names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if c.V1.Spec.Group != v1beta1.GroupVersion.Group || c.V1.Spec.Scope != apiextensionsv1.NamespaceScoped ||
		len(c.V1.Spec.Versions) != 1 ||
		c.Version.Subresources == nil || c.Version.Subresources.Status == nil {
		t.Errorf("the definition is %+v", c.V1.Spec)
	}
	var columns []string
	for _, column := range c.Version.AdditionalPrinterColumns {
		columns = append(columns, column.Name+" "+column.JSONPath)
	}
	if diff := cmp.Diff([]string{"Compliance state .status.compliant", "Age .metadata.creationTimestamp"},
		columns); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
}

// TestPolicySetFields wants every field of the public PolicySet API, and a description of each.
func TestPolicySetFields(t *testing.T) {
	properties := loadPolicySetCRD(t).Version.Schema.OpenAPIV3Schema.Properties
	fields := crdtest.Fields(map[string]apiextensionsv1.JSONSchemaProps{"spec": properties["spec"],
		"status": properties["status"]})
	for path, field := range fields {
		if field.Description == "" {
			t.Errorf("%s has no description", path)
		}
	}
	for path, kind := range map[string]string{
		"spec.description":                    "string",
		"spec.policies":                       "array",
		"status.compliant":                    "string",
		"status.statusMessage":                "string",
		"status.placement":                    "array",
		"status.placement[].placement":        "string",
		"status.placement[].placementBinding": "string",
		"status.placement[].placementRule":    "string",
	} {
		if got := fields[path].Type; got != kind {
			t.Errorf("%s is a %q, want %s", path, got, kind)
		}
	}
}

// TestPolicySetDocument passes a whole set through the schema and the types, unchanged.
func TestPolicySetDocument(t *testing.T) {
	stored := policySet()
	if pruned, errs := loadPolicySetCRD(t).Admit(stored); len(pruned) > 0 || len(errs) > 0 ||
		!reflect.DeepEqual(stored, policySet()) {
		t.Errorf("pruned %v, refused %v, stored %v", pruned, errs, stored)
	}
	text, err := json.Marshal(policySet())
	if err != nil {
		t.Fatal(err)
	}
	var set v1beta1.PolicySet
	if strict, err := kjson.UnmarshalStrict(text, &set); err != nil || len(strict) > 0 {
		t.Fatalf("decode: %v %v", err, strict)
	}
	crdtest.CheckRoundTrip(t, &set, policySet())
}

// many returns some names.
func many(count int) (names []any) {
	for i := range count {
		names = append(names, fmt.Sprint("p", i))
	}
	return names
}

func TestPolicySetSchema(t *testing.T) {
	c := loadPolicySetCRD(t)
	for name, test := range map[string]struct {
		policies any
		at       string // "" if it is accepted
	}{
		"without Policies":        {[]any{}, ""},
		"with one Policy twice":   {[]any{"app", "app"}, ""},
		"no list":                 {nil, "spec.policies"},
		"a name that is empty":    {[]any{"app", ""}, "spec.policies[1]"},
		"a name that is none":     {[]any{int64(1)}, "spec.policies[0]"},
		"text":                    {"app", "spec.policies"},
		"as many as are read":     {many(1_000), ""},
		"attack: too many":        {many(1_001), "spec.policies"},
		"attack: too long a name": {[]any{strings.Repeat("x", 254)}, "spec.policies[0]"},
	} {
		obj := policySet()
		obj["spec"] = map[string]any{"policies": test.policies}
		_, errs := c.Admit(obj)
		switch {
		case test.at == "" && len(errs) > 0:
			t.Errorf("%s: %v", name, errs)
		case test.at != "" && (len(errs) != 1 || errs[0].Field != test.at):
			t.Errorf("%s should give one error at %s, gives %v", name, test.at, errs)
		}
	}
}

func TestSchemeKnowsPolicySet(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{v1beta1.PolicySetKind, v1beta1.PolicySetKind + "List"} {
		if _, err := scheme.New(v1beta1.GroupVersion.WithKind(kind)); err != nil {
			t.Error(err)
		}
	}
}
