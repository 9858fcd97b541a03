package change

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/crdify/pkg/config"
	"sigs.k8s.io/crdify/pkg/runner"
	"sigs.k8s.io/crdify/pkg/validations"
	"sigs.k8s.io/crdify/pkg/validations/property"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

type (
	schema     = apiextensionsv1.JSONSchemaProps
	comparator = validations.Comparator[schema]
)

// comparators are those of crdify with the configuration that OLM v1 uses (package crdupgradesafety of
// operator-controller): all of its default registry, as errors, except that descriptions may change and enums may grow.
var comparators = sync.OnceValues(func() ([]comparator, error) {
	registry := runner.DefaultRegistry()
	loaded, err := validations.LoadValidationsFromRegistry(registry)
	if err != nil {
		return nil, fmt.Errorf("load the comparators of crdify: %w", err)
	}
	configured, err := validations.ConfigureValidations(loaded, registry,
		config.Config{Validations: []config.ValidationConfig{
			{Name: "description", Enforcement: config.EnforcementPolicyNone},
			{Name: "enum", Enforcement: config.EnforcementPolicyError,
				Configuration: map[string]any{"additionPolicy": property.AdditionPolicyAllow}},
		}})
	if err != nil {
		return nil, fmt.Errorf("configure the comparators of crdify: %w", err)
	}
	return validations.ComparatorsForValidations[schema](slices.Collect(maps.Values(configured))...), nil
})

// budget is what may be spent on comparing all schemas of one bundle.
type budget struct {
	// nodes are the copies of schema nodes that crdify makes: each node once for each of its ancestors.
	nodes int
	// bytes are those that are decoded: schemas of elements once for each list around them.
	bytes int
}

// newBudget returns a budget for some seconds on a slow machine.
func newBudget() *budget { return &budget{nodes: 60_000, bytes: 256 << 20} }

// tooLarge is the difference of schemas that exceed the budget.
const tooLarge = "the schema changes in more places than are compared"

// compareSchemas returns what objects or clients of one version may not survive in another, a line for each in order:
// fields that are removed, and constraints of fields that both have. wider are the fields that accept more than before.
func (left *budget) compareSchemas(was, is *definitionVersion) (broken, wider []string, err error) {
	if was.digest == is.digest {
		return nil, nil, nil
	}
	for _, raw := range []json.RawMessage{was.Schema, is.Schema} {
		_, depth := apijson.Measure(raw)
		if left.bytes -= len(raw) * depth; left.bytes < 0 {
			return []string{tooLarge}, nil, nil
		}
	}
	a, err := readSchema(was.Schema)
	if err != nil {
		return nil, nil, err
	}
	b, err := readSchema(is.Schema)
	if err != nil {
		return nil, nil, err
	}
	if prune(a, b) {
		return nil, nil, nil
	}
	if left.nodes -= work(a, 1) + work(b, 1); left.nodes < 0 {
		return []string{tooLarge}, nil, nil
	}
	return compareFields(a, b)
}

// readSchema decodes the schema of a version. A version without one accepts anything.
func readSchema(raw json.RawMessage) (*schema, error) {
	var validation apiextensionsv1.CustomResourceValidation
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &validation); err != nil {
			return nil, fmt.Errorf("the schema cannot be read: %w", err)
		}
	}
	if validation.OpenAPIV3Schema == nil {
		return &schema{}, nil
	}
	normalize(validation.OpenAPIV3Schema)
	return validation.OpenAPIV3Schema, nil
}

// escapeName keeps the paths of two fields apart: crdify joins names with dots.
var escapeName = strings.NewReplacer("%", "%25", ".", "%2E", "[", "%5B", "]", "%5D")

// normalize removes what has no effect on validation, and brings the rest into the form in which it is compared:
//   - Defaults and enums in the order of keys of the API server, which stores them so.
//   - Compositions (allOf, anyOf, oneOf, not) as a digest in field id, which schemas of
//     CustomResourceDefinitions may not have. crdify puts the members of a composition in the place of the field that
//     they constrain, so it would not see changes of that field.
//   - Fields with names that are no part of a path escaped.
//   - Without the fields that the API server forbids: crdify walks over them in random order.
func normalize(s *schema) {
	s.Description, s.Title, s.Example, s.ExternalDocs = "", "", nil, nil
	s.PatternProperties, s.Definitions, s.Dependencies, s.AdditionalItems, s.ID = nil, nil, nil, nil, ""
	if s.Default != nil {
		s.Default = &apiextensionsv1.JSON{Raw: canonical(s.Default.Raw)}
	}
	for i := range s.Enum {
		s.Enum[i].Raw = canonical(s.Enum[i].Raw)
	}
	slices.Sort(s.Required)
	if s.AllOf != nil || s.AnyOf != nil || s.OneOf != nil || s.Not != nil {
		s.ID = compositionDigest(s)
		s.AllOf, s.AnyOf, s.OneOf, s.Not = nil, nil, nil, nil
	}
	if s.Items != nil {
		s.Items.JSONSchemas = nil
		if s.Items.Schema != nil {
			normalize(s.Items.Schema)
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		normalize(s.AdditionalProperties.Schema)
	}
	properties := make(map[string]schema, len(s.Properties))
	for name, p := range s.Properties {
		normalize(&p)
		properties[escapeName.Replace(name)] = p
	}
	s.Properties = properties
}

// compositionDigest returns a digest of the compositions of a schema.
func compositionDigest(s *schema) string {
	raw, err := json.Marshal(&schema{AllOf: s.AllOf, AnyOf: s.AnyOf, OneOf: s.OneOf, Not: s.Not})
	if err != nil {
		return "invalid" // what decoded also encodes
	}
	return fmt.Sprintf("%x", olm.ContentsDigest(raw))
}

// canonical returns JSON with sorted keys and without white space; invalid JSON unchanged.
func canonical(raw []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return raw
	}
	sorted, err := json.Marshal(value)
	if err != nil {
		return raw
	}
	return sorted
}

// prune removes from both schemas the fields that are equal in both, so that crdify compares only what differs. It
// reports whether all of it is equal.
func prune(a, b *schema) bool {
	same := true
	for name, was := range a.Properties {
		is, ok := b.Properties[name]
		if ok && prune(&was, &is) {
			delete(a.Properties, name)
			delete(b.Properties, name)
			continue
		}
		same = false
	}
	same = same && len(b.Properties) == 0
	same = pruneChild(itemsOf(a), itemsOf(b)) && same
	same = pruneChild(valuesOf(a), valuesOf(b)) && same
	return same && (reflect.DeepEqual(shallow(a), shallow(b)) || equality.Semantic.DeepEqual(shallow(a), shallow(b)))
}

// pruneChild prunes the schemas of elements.
func pruneChild(a, b *schema) bool {
	if a == nil || b == nil {
		return a == b
	}
	return prune(a, b)
}

func itemsOf(s *schema) *schema {
	if s.Items == nil {
		return nil
	}
	return s.Items.Schema
}

func valuesOf(s *schema) *schema {
	if s.AdditionalProperties == nil {
		return nil
	}
	return s.AdditionalProperties.Schema
}

// shallow returns a schema without those of its fields and elements.
func shallow(s *schema) *schema {
	only := *s
	only.Properties, only.Items = nil, nil
	if valuesOf(s) != nil {
		only.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: s.AdditionalProperties.Allows}
	}
	return &only
}

// work returns the number of nodes that are copied if each ancestor of a node copies it; depth counts the ancestors.
func work(s *schema, depth int) int {
	if s == nil {
		return 0
	}
	total := depth + work(itemsOf(s), depth+1) + work(valuesOf(s), depth+1)
	for _, p := range s.Properties {
		total += work(&p, depth+1)
	}
	return total
}

// compareFields compares two schemas field by field.
func compareFields(a, b *schema) (broken, wider []string, err error) {
	compare, err := comparators()
	if err != nil {
		return nil, nil, err
	}
	was := validations.FlattenCRDVersion(versionOf(a))
	is := validations.FlattenCRDVersion(versionOf(b))
	for path, old := range was {
		node := is[path]
		if node == nil {
			if parent := parentOf(path); parent == "" || is[parent] != nil { // else the parent is what is removed
				broken = append(broken, fieldName(path)+" is removed")
			}
			continue
		}
		before, after := alone(old), alone(node)
		if dropped := widen(before, after); len(dropped) > 0 {
			wider = append(wider, fieldName(path)+": accepts more: "+strings.Join(dropped, ", "))
		}
		for _, result := range validations.CompareProperties(before.DeepCopy(), after.DeepCopy(),
			config.EnforcementPolicyError, compare...) {
			for _, message := range result.Errors {
				broken = append(broken, fieldName(path)+": "+describe(result.Name, message, before, after))
			}
		}
	}
	return sorted(broken), sorted(wider), nil
}

// widen makes both schemas of a field equal where the later one only accepts more, which crdify counts as a change like
// others, and returns in which keywords: an enum, a pattern, a format or rules that are gone, and null that is allowed.
func widen(was, is *schema) (keywords []string) {
	note := func(keyword string, wider bool) bool {
		if wider {
			keywords = append(keywords, keyword)
		}
		return wider
	}
	if note("enum", len(was.Enum) > 0 && len(is.Enum) == 0) {
		was.Enum = is.Enum
	}
	if note("format", was.Format != "" && is.Format == "") {
		was.Format = ""
	}
	if note("nullable", !was.Nullable && is.Nullable) {
		was.Nullable = true
	}
	if note("pattern", was.Pattern != "" && is.Pattern == "") {
		was.Pattern = ""
	}
	kept := slices.DeleteFunc(slices.Clone(was.XValidations), func(r apiextensionsv1.ValidationRule) bool {
		return !slices.ContainsFunc(is.XValidations, func(other apiextensionsv1.ValidationRule) bool { return other.Rule == r.Rule })
	})
	if note("x-kubernetes-validations", len(kept) < len(was.XValidations)) {
		if was.XValidations = kept; len(kept) == 0 {
			was.XValidations = nil
		}
	}
	return keywords
}

func versionOf(s *schema) apiextensionsv1.CustomResourceDefinitionVersion {
	validation := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: s}
	return apiextensionsv1.CustomResourceDefinitionVersion{Schema: validation}
}

// alone returns a copy of a field's schema without those of its fields and elements.
func alone(s *schema) *schema { return shallow(s).DeepCopy() }

// parentOf returns the path of the object or list that a field belongs to; "" for the root.
func parentOf(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

// fieldName returns a path as messages show it: crdify's begins with ^.
func fieldName(path string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(path, "^"), ".")
	if name == "" {
		return "the object"
	}
	return text.Escape(name)
}

// describe returns what a comparator found without what changes from one call to the next.
func describe(name, message string, was, is *schema) string {
	switch name {
	case "required":
		added := slices.DeleteFunc(slices.Clone(is.Required),
			func(f string) bool { return slices.Contains(was.Required, f) })
		return "new required fields: " + text.Names(sorted(added), maxListed)
	case "unhandled":
		return "changed: " + text.Join(changedKeywords(was, is), maxListed)
	}
	return text.Truncate(strings.Replace(message, " : ", ": ", 1), maxText)
}

// handled are the keywords that comparators of crdify compare.
var handled = []string{"type", "required", "enum", "default", "description", "maximum", "maxItems", "maxLength",
	"maxProperties", "minimum", "minItems", "minLength", "minProperties"}

// changedKeywords returns the keywords of a field that differ and that no comparator handles.
func changedKeywords(was, is *schema) []string {
	before, after := keywords(was), keywords(is)
	changed := slices.DeleteFunc(slices.AppendSeq(sortedKeys(before), maps.Keys(after)), func(name string) bool {
		return bytes.Equal(before[name], after[name]) || slices.Contains(handled, name)
	})
	for i := range changed {
		if changed[i] == "id" {
			changed[i] = "allOf, anyOf, oneOf or not"
		}
	}
	return sorted(changed)
}

func keywords(s *schema) map[string]json.RawMessage {
	var found map[string]json.RawMessage
	raw, err := json.Marshal(shallow(s))
	if err != nil || json.Unmarshal(raw, &found) != nil {
		return nil // a schema always encodes as an object
	}
	return found
}
