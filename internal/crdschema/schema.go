// Package crdschema validates objects by the schemas of CustomResourceDefinitions, with their rules in CEL, as the API
// server does before it asks the gate. The gate needs it for what no API server has validated by Opgate's schema: what
// an earlier release has stored, an OperatorPolicy whose definition another program owns, and fields that come from the
// annotation of conversion.
package crdschema

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apifield "k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/utils/lru"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/manifests/crd"
)

// Schema is the schema of a version of a kind.
type Schema struct {
	structural *structural.Structural
	// validators compiles when it is first called.
	validators func() *validators
	// admitted has the digests of fields that were found valid of late: what is stored is read again with each status.
	admitted *lru.Cache
}

// maxAdmitted bounds the digests of a schema.
const maxAdmitted = 4096

type validators struct {
	keywords validation.SchemaValidator
	rules    *cel.Validator
}

// own are the schemas of all versions of Opgate's kinds.
var own = sync.OnceValue(func() map[schema.GroupVersionKind]*Schema {
	all := map[schema.GroupVersionKind]*Schema{}
	files, err := fs.Glob(crd.Definitions, "*.yaml")
	must(err)
	for _, file := range files {
		text, err := crd.Definitions.ReadFile(file)
		must(err)
		d := &apiextensionsv1.CustomResourceDefinition{}
		must(yaml.UnmarshalStrict(text, d))
		for _, v := range d.Spec.Versions {
			all[schema.GroupVersionKind{Group: d.Spec.Group, Version: v.Name, Kind: d.Spec.Names.Kind}] = Of(d, v.Name)
		}
	}
	return all
})

// Own returns the schema of a version of one of Opgate's kinds, nil for any other. The first call reads them all.
func Own(gvk schema.GroupVersionKind) *Schema { return own()[gvk] }

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
	}), lru.New(maxAdmitted)}
}

func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("crdschema: %v", err))
	}
}

// SpecFields returns the fields of spec, sorted.
func (s *Schema) SpecFields() []string {
	return slices.Sorted(maps.Keys(s.structural.Properties["spec"].Properties))
}

// Default fills the fields of an object that have a default, as the API server does before it asks the gate.
func (s *Schema) Default(object map[string]any) {
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s.structural)
	defaulting.Default(object, s.structural)
}

// Validate returns what the schema does not admit in the JSON of an object: nothing in the status, which is not written
// with the spec, and nothing if the JSON does not decode, which its decoding reports.
func (s *Schema) Validate(raw []byte) apifield.ErrorList {
	if object := written(raw); object != nil {
		return s.validate(object)
	}
	return nil
}

// written returns an object without its status, nil if it does not decode.
func written(raw []byte) (object map[string]any) {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil
	}
	delete(object, "status")
	return object
}

// Unknown returns the paths in the JSON of an object that the schema has no field for, sorted. Its status is not looked
// at, nor objects that may have any fields.
func (s *Schema) Unknown(raw []byte) []string {
	paths := unknown(s.structural, written(raw), nil)
	slices.Sort(paths)
	return paths
}

func unknown(s *structural.Structural, value any, path *apifield.Path) (paths []string) {
	switch value := value.(type) {
	case []any:
		for i := 0; s.Items != nil && i < len(value); i++ {
			paths = append(paths, unknown(s.Items, value[i], path.Index(i))...)
		}
	case map[string]any:
		for name, member := range value {
			if property, known := s.Properties[name]; known {
				paths = append(paths, unknown(&property, member, path.Child(name))...)
			} else if len(s.Properties) > 0 {
				paths = append(paths, path.Child(name).String())
			}
		}
	}
	return paths
}

// Check returns what the schema does not admit in a field of the object, given as a pointer to a struct. A text that is
// empty counts as one that is left out.
func (s *Schema) Check(field string, value any) apifield.ErrorList {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
	if err != nil {
		return apifield.ErrorList{apifield.Invalid(apifield.NewPath(field), apifield.OmitValueType{}, err.Error())}
	}
	leaveOutEmpty(content)
	object := map[string]any{field: content}
	text, err := json.Marshal(object)
	must(err) // what was converted has strings, numbers, booleans, lists and maps alone
	digest := sha256.Sum256(text)
	if _, known := s.admitted.Get(digest); known {
		return nil
	}
	errs := s.validate(object)
	if len(errs) == 0 {
		s.admitted.Add(digest, nil)
	}
	return errs
}

// leaveOutEmpty removes the fields that are empty texts, which fields of a struct are that are not set.
func leaveOutEmpty(value any) {
	switch value := value.(type) {
	case []any:
		for i := range value {
			leaveOutEmpty(value[i])
		}
	case map[string]any:
		maps.DeleteFunc(value, func(_ string, member any) bool { return member == "" })
		for _, member := range value {
			leaveOutEmpty(member)
		}
	}
}

// validate does what the API server does, in its order. It changes the object.
func (s *Schema) validate(object map[string]any) apifield.ErrorList {
	validators := s.validators()
	errs := limitItems(s.structural, object, nil)
	s.Default(object)
	errs = append(errs, validation.ValidateCustomResource(nil, object, validators.keywords)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	//nolint:forbidigo // rules of a schema make no calls
	broken, _ := validators.rules.Validate(context.Background(), nil, s.structural, object, nil,
		celconfig.RuntimeCELCostBudget)
	errs = append(errs, slices.DeleteFunc(broken, func(rule *apifield.Error) bool { // which relies on the keywords
		return slices.ContainsFunc(errs, func(err *apifield.Error) bool {
			rest, isWithin := strings.CutPrefix(err.Field, rule.Field)
			return isWithin && (rest == "" || strings.ContainsAny(rest[:1], ".["))
		})
	})...)
	slices.SortStableFunc(errs, func(a, b *apifield.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

// limitItems returns the lists of a value that have more items than the schema admits, and cuts them off there: what is
// wrong with the others would take memory without bound.
func limitItems(s *structural.Structural, value any, path *apifield.Path) (errs apifield.ErrorList) {
	switch value := value.(type) {
	case []any:
		for i := range value {
			if s.Items != nil {
				errs = append(errs, limitItems(s.Items, value[i], path.Index(i))...)
			}
		}
	case map[string]any:
		for name, member := range value {
			property := s.Properties[name]
			list, _ := member.([]any)
			if v := property.ValueValidation; v != nil && v.MaxItems != nil && int64(len(list)) > *v.MaxItems {
				errs = append(errs, apifield.TooMany(path.Child(name), len(list), int(*v.MaxItems)))
				value[name] = list[:*v.MaxItems]
			}
			errs = append(errs, limitItems(&property, value[name], path.Child(name))...)
		}
	}
	return errs
}
