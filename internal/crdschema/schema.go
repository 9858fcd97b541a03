// Package crdschema validates objects by the schemas of CustomResourceDefinitions, as the API server does before it
// asks the gate. The gate needs it for what no API server has validated by Opgate's schema: an OperatorPolicy whose
// definition another program owns, and fields that come from the annotation of conversion.
package crdschema

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apifield "k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/manifests/crd"
)

// Schema is the schema of a version of a kind.
type Schema struct {
	structural *structural.Structural
	// validators compiles when it is first called.
	validators func() *validators
}

type validators struct {
	keywords validation.SchemaValidator
	rules    *cel.Validator
}

// own reads the schema of each version of Opgate's kinds when it is first asked for.
var own = sync.OnceValue(func() map[schema.GroupVersionKind]func() *Schema {
	all := map[schema.GroupVersionKind]func() *Schema{}
	files, err := fs.Glob(crd.Definitions, "*.yaml")
	must(err)
	for _, file := range files {
		text, err := crd.Definitions.ReadFile(file)
		must(err)
		d := &apiextensionsv1.CustomResourceDefinition{}
		must(yaml.UnmarshalStrict(text, d))
		for _, v := range d.Spec.Versions {
			gvk := schema.GroupVersionKind{Group: d.Spec.Group, Version: v.Name, Kind: d.Spec.Names.Kind}
			all[gvk] = sync.OnceValue(func() *Schema { return Of(d, v.Name) })
		}
	}
	return all
})

// Own returns the schema of a version of one of Opgate's kinds, nil for any other. The first call for each reads it.
func Own(gvk schema.GroupVersionKind) *Schema {
	compile := own()[gvk]
	if compile == nil {
		return nil
	}
	return compile()
}

// Of returns the schema of a version of a definition. It panics if that cannot be read: definitions are those of this
// program, and tests read them.
func Of(d *apiextensionsv1.CustomResourceDefinition, version string) *Schema {
	i := slices.IndexFunc(d.Spec.Versions,
		func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
	var internal apiextensions.JSONSchemaProps
	must(apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		d.Spec.Versions[i].Schema.OpenAPIV3Schema, &internal, nil))
	s, err := structural.NewStructural(&internal)
	must(err)
	return &Schema{s, sync.OnceValue(func() *validators {
		keywords, _, err := validation.NewSchemaValidator(&internal)
		must(err)
		return &validators{keywords, cel.NewValidator(s, true, celconfig.PerCallLimit)}
	})}
}

// Compile returns the schema once its first Validate takes as long as any other.
func (s *Schema) Compile() *Schema {
	s.validators()
	return s
}

func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("read the definitions: %v", err))
	}
}

// SpecFields returns the fields of spec, sorted.
func (s *Schema) SpecFields() []string {
	spec := s.structural.Properties["spec"]
	return slices.Sorted(maps.Keys(spec.Properties))
}

// Validate returns what the schema does not admit in the JSON of an object: nothing in the status, which is not written
// with the spec, and nothing if the JSON does not decode, which its decoding reports. Of lists that are too long
// nothing else is reported: what is wrong with each of their items would take memory without bound.
func (s *Schema) Validate(raw []byte) apifield.ErrorList {
	var object map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil
	}
	delete(object, "status")
	validators := s.validators()
	if errs := tooMany(s.structural, object, nil); len(errs) > 0 {
		return errs
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s.structural)
	defaulting.Default(object, s.structural)
	errs := validation.ValidateCustomResource(nil, object, validators.keywords)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	if len(errs) == 0 { // rules rely on the rest of the schema
		//nolint:forbidigo // rules of a schema make no calls
		errs, _ = validators.rules.Validate(context.Background(), nil, s.structural, object, nil,
			celconfig.RuntimeCELCostBudget)
	}
	return errs
}

// tooMany returns the lists of a value that have more items than the schema admits.
func tooMany(s *structural.Structural, value any, path *apifield.Path) (errs apifield.ErrorList) {
	switch value := value.(type) {
	case []any:
		if v := s.ValueValidation; v != nil && v.MaxItems != nil && int64(len(value)) > *v.MaxItems {
			return apifield.ErrorList{apifield.TooMany(path, len(value), int(*v.MaxItems))}
		}
		for i := range value {
			if s.Items != nil {
				errs = append(errs, tooMany(s.Items, value[i], path.Index(i))...)
			}
		}
	case map[string]any:
		for name, member := range value {
			if property, ok := s.Properties[name]; ok {
				errs = append(errs, tooMany(&property, member, path.Child(name))...)
			}
		}
	}
	return errs
}
