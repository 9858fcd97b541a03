// Package constraint_test holds the two versions of the Constraint API, their definition and the documents of the design to
// each other.
package constraint_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	constraintv2 "github.com/opgate/opgate/api/constraint/v2"
)

var crdFile = filepath.Join("..", "..", "manifests", "crd", "operators.coreos.com_constraints.yaml")

// crd is the generated CRD as the API server holds it, with the schema of the stored version compiled twice: once for pruning
// and defaulting, once for validation. TestVersionsAreTheSame makes the stored version stand for both.
type crd struct {
	v1        apiextensionsv1.CustomResourceDefinition
	internal  apiextensions.CustomResourceDefinition
	schema    *schema.Structural
	validator validation.SchemaValidator
}

func loadCRD(t *testing.T) *crd {
	t.Helper()
	text, err := os.ReadFile(crdFile)
	if err != nil {
		t.Fatal(err)
	}
	var c crd
	if err := yaml.UnmarshalStrict(text, &c.v1); err != nil {
		t.Fatalf("decode %s: %v", crdFile, err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	scheme.Default(&c.v1)
	if err := scheme.Convert(&c.v1, &c.internal, nil); err != nil {
		t.Fatalf("convert the CRD: %v", err)
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		c.version(t, constraintv1.Version).Schema.OpenAPIV3Schema, &props, nil); err != nil {
		t.Fatalf("convert the schema: %v", err)
	}
	if c.schema, err = schema.NewStructural(&props); err != nil {
		t.Fatalf("the schema is not structural: %v", err)
	}
	if c.validator, _, err = validation.NewSchemaValidator(&props); err != nil {
		t.Fatalf("compile the schema: %v", err)
	}
	return &c
}

func (c *crd) version(t *testing.T, name string) apiextensionsv1.CustomResourceDefinitionVersion {
	t.Helper()
	for _, v := range c.v1.Spec.Versions {
		if v.Name == name && v.Schema != nil {
			return v
		}
	}
	t.Fatalf("the CRD has no schema for version %s", name)
	return apiextensionsv1.CustomResourceDefinitionVersion{}
}

// admit does to an object what the API server does when it is written, in the same order, and returns the paths that were
// pruned. The object is changed in place.
func (c *crd) admit(obj map[string]any) (pruned []string, errs field.ErrorList) {
	pruned = pruning.PruneWithOptions(obj, c.schema, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, c.schema)
	defaulting.Default(obj, c.schema)
	errs = validation.ValidateCustomResource(nil, obj, c.validator)
	return pruned, append(errs, listtype.ValidateListSetsAndMaps(nil, c.schema, obj)...)
}

func TestCRDIsAccepted(t *testing.T) {
	c := loadCRD(t)
	if errs := schema.ValidateStructural(nil, c.schema); len(errs) > 0 {
		t.Errorf("the schema is not structural: %v", errs)
	}
	// The API server fills this in when the CRD is created.
	c.internal.Status.StoredVersions = []string{constraintv1.Version}
	if errs := crdvalidation.ValidateCustomResourceDefinition(t.Context(), &c.internal); len(errs) > 0 {
		t.Errorf("the API server would refuse the CRD: %v", errs)
	}
}

// TestCRDIdentity holds the definition to that of the design, but for the kind, which is the one of the design's example.
func TestCRDIdentity(t *testing.T) {
	c := loadCRD(t)
	want := apiextensionsv1.CustomResourceDefinitionNames{
		Plural: "constraints", Singular: "constraint", ShortNames: []string{"constraint"}, Kind: "Constraint", ListKind: "ConstraintList",
	}
	if diff := cmp.Diff(want, c.v1.Spec.Names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if got := []string{constraintv1.Group, constraintv1.Kind, constraintv1.Resource}; !reflect.DeepEqual(got, []string{c.v1.Spec.Group, want.Kind, want.Plural}) {
		t.Errorf("the constants of v1 are %v", got)
	}
	if got := []string{constraintv2.Group, constraintv2.Kind, constraintv2.Resource}; !reflect.DeepEqual(got, []string{c.v1.Spec.Group, want.Kind, want.Plural}) {
		t.Errorf("the constants of v2 are %v", got)
	}
	if c.v1.Spec.Scope != apiextensionsv1.ClusterScoped {
		t.Errorf("scope is %s", c.v1.Spec.Scope)
	}
	if c.v1.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
		t.Errorf("conversion is by %s, which somebody has to answer", c.v1.Spec.Conversion.Strategy)
	}
	var versions []string
	for _, v := range c.v1.Spec.Versions {
		versions = append(versions, v.Name)
		if stored := v.Name == constraintv1.Version; v.Storage != stored || !v.Served {
			t.Errorf("version %s: stored is %t, served is %t", v.Name, v.Storage, v.Served)
		}
		if v.Subresources == nil || v.Subresources.Status == nil {
			t.Errorf("version %s has no status subresource: anyone who may write the spec could write the status", v.Name)
		}
	}
	if want := []string{constraintv1.Version, constraintv2.Version}; !reflect.DeepEqual(versions, want) {
		t.Errorf("versions are %v, want %v", versions, want)
	}
}

// TestVersionsAreTheSame shows why no webhook has to convert: but for their names the versions are equal.
func TestVersionsAreTheSame(t *testing.T) {
	c := loadCRD(t)
	one, two := c.version(t, constraintv1.Version), c.version(t, constraintv2.Version)
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
	for _, column := range loadCRD(t).version(t, constraintv1.Version).AdditionalPrinterColumns {
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
	properties := loadCRD(t).version(t, constraintv1.Version).Schema.OpenAPIV3Schema.Properties
	for path, least := range map[string]int{"spec": 2, "status": 17} {
		if fields := walk(path, properties[path]); fields < least {
			t.Errorf("%s has %d fields, so not all of them were seen", path, fields)
		}
	}
}
