// Package crdtest does to objects, in tests without an API server, what the API server does by a generated definition.
package crdtest

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// CRD is a generated definition as the API server holds it, with the schema of one version compiled twice: once for
// pruning and defaulting, once for validation.
type CRD struct {
	V1        apiextensionsv1.CustomResourceDefinition
	Version   apiextensionsv1.CustomResourceDefinitionVersion
	Schema    *schema.Structural
	internal  apiextensions.CustomResourceDefinition
	validator validation.SchemaValidator
	rules     func(obj map[string]any) field.ErrorList
}

// What the API server lets one rule, and all rules for an object, cost.
const (
	ruleCost   = 1_000_000
	objectCost = 10_000_000
)

// Load reads manifests/crd/file; root is the way from the test's directory to that of the repository.
func Load(t *testing.T, root, file, version string) *CRD {
	t.Helper()
	text, err := fs.ReadFile(os.DirFS(filepath.Join(root, "manifests", "crd")), file)
	if err != nil {
		t.Fatal(err)
	}
	var c CRD
	if err := yaml.UnmarshalStrict(text, &c.V1); err != nil {
		t.Fatalf("decode %s: %v", file, err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	scheme.Default(&c.V1)
	if err := scheme.Convert(&c.V1, &c.internal, nil); err != nil {
		t.Fatalf("convert the CRD: %v", err)
	}
	c.Version = c.VersionNamed(t, version)
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		c.Version.Schema.OpenAPIV3Schema, &props, nil); err != nil {
		t.Fatalf("convert the schema: %v", err)
	}
	if c.Schema, err = schema.NewStructural(&props); err != nil {
		t.Fatalf("the schema is not structural: %v", err)
	}
	if c.validator, _, err = validation.NewSchemaValidator(&props); err != nil {
		t.Fatalf("compile the schema: %v", err)
	}
	rules := cel.NewValidator(c.Schema, true, ruleCost)
	c.rules = func(obj map[string]any) field.ErrorList {
		errs, _ := rules.Validate(t.Context(), nil, c.Schema, obj, nil, objectCost)
		return errs
	}
	return &c
}

// VersionNamed returns a version with its schema.
func (c *CRD) VersionNamed(t *testing.T, name string) apiextensionsv1.CustomResourceDefinitionVersion {
	t.Helper()
	for _, v := range c.V1.Spec.Versions {
		if v.Name == name && v.Schema != nil {
			return v
		}
	}
	t.Fatalf("the CRD has no schema for version %s", name)
	return apiextensionsv1.CustomResourceDefinitionVersion{}
}

// Admit does to an object what the API server does when it is written, in the same order, and returns the paths that
// were pruned. The object is changed in place.
func (c *CRD) Admit(obj map[string]any) (pruned []string, errs field.ErrorList) {
	pruned = pruning.PruneWithOptions(obj, c.Schema, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, c.Schema)
	defaulting.Default(obj, c.Schema)
	errs = validation.ValidateCustomResource(nil, obj, c.validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.Schema, obj)...)
	if len(errs) == 0 { // rules read what they can rely on
		errs = c.rules(obj)
	}
	return pruned, errs
}

// CheckAccepted wants that the API server takes the definition.
func (c *CRD) CheckAccepted(t *testing.T) {
	t.Helper()
	if errs := schema.ValidateStructural(nil, c.Schema); len(errs) > 0 {
		t.Errorf("the schema is not structural: %v", errs)
	}
	// The API server fills this in when the CRD is created.
	for _, v := range c.V1.Spec.Versions {
		if v.Storage {
			c.internal.Status.StoredVersions = []string{v.Name}
		}
	}
	if errs := crdvalidation.ValidateCustomResourceDefinition(t.Context(), &c.internal); len(errs) > 0 {
		t.Errorf("the API server would refuse the CRD: %v", errs)
	}
}

// CheckRoundTrip wants that a document which was decoded into typed comes back as it was, through JSON and through the
// converter of unstructured objects.
func CheckRoundTrip(t *testing.T, typed any, want map[string]any) {
	t.Helper()
	text, err := json.Marshal(typed)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("through the types and back:\n got %v\nwant %v", got, want)
	}
	if got, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("through the unstructured converter:\n got %v\nwant %v", got, want)
	}
}
