// Package constraint_test holds the two versions of the Constraint API, their definition and the documents of the
// design to each other.
package constraint_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	constraintv2 "github.com/opgate/opgate/api/constraint/v2"
	"github.com/opgate/opgate/api/internal/crdtest"
)

func loadCRD(t *testing.T) *crdtest.CRD {
	t.Helper()
	return crdtest.Load(t, "../..", "operators.coreos.com_constraints.yaml", constraintv1.Version)
}

func TestCRDIsAccepted(t *testing.T) { loadCRD(t).CheckAccepted(t) }

// TestCRDIdentity holds the definition to that of the design, but for the kind, which is the one of the design's
// example.
func TestCRDIdentity(t *testing.T) {
	c := loadCRD(t)
	want := apiextensionsv1.CustomResourceDefinitionNames{
		Plural: "constraints", Singular: "constraint", ShortNames: []string{"constraint"}, Kind: "Constraint",
		ListKind: "ConstraintList", Categories: []string{"opgate"},
	}
	if diff := cmp.Diff(want, c.V1.Spec.Names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if got := []string{constraintv1.Group, constraintv1.Kind, constraintv1.Resource}; !reflect.DeepEqual(got,
		[]string{c.V1.Spec.Group, want.Kind, want.Plural}) {
		t.Errorf("the constants of v1 are %v", got)
	}
	// By this label Policies know what can be a template.
	if got := c.V1.Labels["policy.open-cluster-management.io/policy-type"]; got != "template" {
		t.Errorf("the label policy-type is %q", got)
	}
	if c.V1.Spec.Scope != apiextensionsv1.ClusterScoped {
		t.Errorf("scope is %s", c.V1.Spec.Scope)
	}
	if c.V1.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
		t.Errorf("conversion is by %s, which needs a webhook", c.V1.Spec.Conversion.Strategy)
	}
	var versions []string
	for _, v := range c.V1.Spec.Versions {
		versions = append(versions, v.Name)
		if stored := v.Name == constraintv1.Version; v.Storage != stored || !v.Served {
			t.Errorf("version %s: stored is %t, served is %t", v.Name, v.Storage, v.Served)
		}
		if v.Subresources == nil || v.Subresources.Status == nil {
			t.Errorf("version %s has no status subresource: anyone who may write the spec could write the status",
				v.Name)
		}
	}
	if want := []string{constraintv1.Version, constraintv2.GroupVersion.Version}; !reflect.DeepEqual(versions, want) {
		t.Errorf("versions are %v, want %v", versions, want)
	}
}

// TestVersionsAreTheSame shows why no webhook has to convert: but for their names the versions are equal.
func TestVersionsAreTheSame(t *testing.T) {
	c := loadCRD(t)
	one, two := c.VersionNamed(t, constraintv1.Version), c.VersionNamed(t, constraintv2.GroupVersion.Version)
	two.Name, two.Storage = one.Name, one.Storage
	if diff := cmp.Diff(one, two); diff != "" {
		t.Errorf("v1 and v2 differ (-v1 +v2):\n%s", diff)
	}
}

func TestPrinterColumns(t *testing.T) {
	want := [][3]string{
		{"Ready", "string", `.status.conditions[?(@.type=="Ready")].status`},
		{"Violating", "integer", ".status.violating"},
		{"Age", "date", ".metadata.creationTimestamp"},
	}
	var got [][3]string
	for _, column := range loadCRD(t).VersionNamed(t, constraintv1.Version).AdditionalPrinterColumns {
		got = append(got, [3]string{column.Name, column.Type, column.JSONPath})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
}

func TestEveryFieldIsDescribed(t *testing.T) {
	var walk func(path string, s apiextensionsv1.JSONSchemaProps) int
	walk = func(path string, s apiextensionsv1.JSONSchemaProps) (fields int) {
		for name, property := range s.Properties {
			if property.Description == "" {
				t.Errorf("%s.%s has no description", path, name)
			}
			fields += 1 + walk(path+"."+name, property)
		}
		if s.Items != nil {
			fields += walk(path, *s.Items.Schema)
		}
		return fields
	}
	properties := loadCRD(t).VersionNamed(t, constraintv1.Version).Schema.OpenAPIV3Schema.Properties
	for path, least := range map[string]int{"spec": 11, "status": 19} {
		if fields := walk(path, properties[path]); fields < least {
			t.Errorf("%s has %d fields, so not all of them were seen", path, fields)
		}
	}
}
