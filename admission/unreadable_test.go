package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/admission/scenario/play"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	"github.com/opgate/opgate/conversion"
	"github.com/opgate/opgate/internal/cases"
	"github.com/opgate/opgate/manifests/crd"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// TestUnreadableFieldsHold makes each field of each of Opgate's objects unreadable in turn, in every scenario in which
// a write to OLM's objects is refused: it has to be refused still (threat G5). The fields are those of the definitions,
// so that a new one is included by itself.
func TestUnreadableFieldsHold(t *testing.T) {
	scenarios := reviewed(t)
	refused := 0
	tried := map[string]bool{}
	for _, s := range scenarios {
		if s.Decision == verdict.Allow.String() || slices.Contains([]string{"operatorpolicy", "constraint", "policy",
			"policyset"}, kindWritten(s)) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			w := newUnreadableWorld(t, s)
			for i, u := range w.existing {
				for _, version := range versionsOf(u) {
					refused += w.makeUnreadable(t, i, version, tried)
				}
			}
		})
	}
	t.Logf("%d unreadable objects", refused)
	if refused < 100 || cases.Long() && refused < 5_000 {
		t.Error("hardly anything was tested")
	}
}

// withAll are the scenarios in which fields that are not set are made unreadable as well.
var withAll = []string{"bundle-version", "bundle-constraint", "bundle-dependency-pending-first",
	"subscription-mustnothave"}

func kindWritten(s *scenario.Scenario) string {
	if s.Write != nil {
		return strings.ToLower(s.Write.GetKind())
	}
	return strings.ToLower(s.Kind)
}

// versionsOf returns one of Opgate's objects in each version in which it may be stored; nothing for another object.
func versionsOf(u *unstructured.Unstructured) []*unstructured.Unstructured {
	switch u.GetKind() {
	case "OperatorPolicy":
		earlier := &unstructured.Unstructured{Object: conversion.ToV1beta1(u.DeepCopy().Object)}
		earlier.SetAPIVersion(policyv1beta1.GroupVersion.String())
		return []*unstructured.Unstructured{u, earlier}
	case "Constraint", "Policy", "PolicySet":
		return []*unstructured.Unstructured{u}
	}
	return nil
}

// unreadableWorld is a scenario of which one object is stored in another form.
type unreadableWorld struct {
	*scenario.Scenario
	existing    []*unstructured.Unstructured
	packages    state.Packages
	catalogs    Catalogs
	old, object *unstructured.Unstructured
	// read are the objects that were read as they are.
	read map[*unstructured.Unstructured]*snapshot.Object
}

func newUnreadableWorld(t *testing.T, s *scenario.Scenario) *unreadableWorld {
	w := &unreadableWorld{Scenario: s, existing: slices.Concat(s.Cluster, s.Policies),
		read: map[*unstructured.Unstructured]*snapshot.Object{}}
	if s.Write != nil && s.Write.GetNamespace() != "" {
		w.existing = append([]*unstructured.Unstructured{namespace(s.Write.GetNamespace())}, w.existing...)
	}
	if s.Catalog != nil {
		known := catalogsOf(t, s)
		w.catalogs, w.packages = known, known.Version
	}
	w.old, w.object = written(t, s, w.existing)
	return w
}

// allowed reports whether the write is allowed while an object is stored as some JSON.
func (w *unreadableWorld) allowed(t *testing.T, object int, stored []byte) bool {
	t.Helper()
	var reader snapshot.Reader
	read := func(kind *snapshot.Kind, u *unstructured.Unstructured) *snapshot.Object {
		if u == w.existing[object] {
			return reader.Read(kind, stored)
		}
		if w.read[u] == nil {
			w.read[u] = reader.Read(kind, raw(t, u))
		}
		return w.read[u]
	}
	gate := newGateWithCatalogs(t, storeRead(t, w.packages, read, w.existing...), overrideBy{"admin"}, w.catalogs)
	return send(t, gate, w.User, w.Verb == "replace-status", w.old, w.object).allowed
}

// makeUnreadable makes each field of an object unreadable in each form, and returns how many these were. Unless all
// cases are tried, it leaves out fields that were tried before, and tries one form of the others, each in turn.
func (w *unreadableWorld) makeUnreadable(t *testing.T, object int, u *unstructured.Unstructured,
	before map[string]bool) (tried int) {
	t.Helper()
	name := func(f *unreadableField) string { return fmt.Sprint(u.GroupVersionKind(), f) }
	fields := slices.DeleteFunc(fieldsOf(t, u), func(f unreadableField) bool {
		return f.value == nil && !slices.Contains(withAll, w.Name) || before[name(&f)] && !cases.Long()
	})
	if len(fields) == 0 || w.allowed(t, object, raw(t, u)) {
		return 0 // conversion without a definition of Opgate keeps less
	}
	for _, f := range fields {
		forms := f.forms()
		maps.DeleteFunc(forms, func(_, text string) bool {
			// the API server, which alone is a source of duplicates, has kept the last one
			return strings.Contains(text, twice) && !slices.Contains([]string{"OperatorPolicy", "Constraint"}, u.GetKind())
		})
		try := slices.Sorted(maps.Keys(forms))
		if !cases.Long() {
			try = try[len(before)%len(try):][:1]
		}
		before[name(&f)] = true
		for _, form := range try {
			stored := f.stored(t, u, forms[form])
			tried++
			if !w.allowed(t, object, stored) {
				continue
			}
			// The API server reads null as a field that is not set.
			if form == "null" {
				without := u.DeepCopy()
				if f.set(without.Object, nil); w.allowed(t, object, raw(t, without)) {
					continue
				}
			}
			t.Errorf("%s %s %s: with %s %s the write is allowed", u.GetAPIVersion(), u.GetKind(), u.GetName(), &f, form)
		}
	}
	return tried
}

// twice separates two values of one field.
const twice = ",@"

// unreadableField is a field of an object, by its path.
type unreadableField struct {
	path   []any
	schema *apiextensionsv1.JSONSchemaProps
	value  any
}

func (f *unreadableField) String() string { return fmt.Sprint(f.path) }

// fieldsOf returns the fields of an object that its definition has and that are set in it, or whose parent is.
func fieldsOf(t *testing.T, u *unstructured.Unstructured) (fields []unreadableField) {
	for _, root := range []string{"spec", "status"} {
		schema := schemaOf(t, u).Properties[root]
		fields = append(fields, walk([]any{root}, &schema, u.Object[root])...)
	}
	return fields
}

// definitions are Opgate's, by kind and version.
var definitions = map[string]*apiextensionsv1.JSONSchemaProps{}

func schemaOf(t *testing.T, u *unstructured.Unstructured) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	gvk := u.GroupVersionKind()
	if definitions[gvk.String()] == nil {
		text, err := crd.Definitions.ReadFile(gvk.Group + "_" + play.ResourceOf(u) + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var d apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		for _, v := range d.Spec.Versions {
			definitions[gvk.GroupVersion().Group+"/"+v.Name+", Kind="+gvk.Kind] = v.Schema.OpenAPIV3Schema
		}
	}
	if definitions[gvk.String()] == nil {
		t.Fatalf("no schema of %s", gvk)
	}
	return definitions[gvk.String()]
}

func walk(path []any, schema *apiextensionsv1.JSONSchemaProps, value any) []unreadableField {
	fields := []unreadableField{{slices.Clone(path), schema, value}}
	below := func(key any, schema *apiextensionsv1.JSONSchemaProps, value any) {
		fields = append(fields, walk(append(slices.Clone(path), key), schema, value)...)
	}
	switch value := value.(type) {
	case map[string]any:
		properties := maps.Clone(schema.Properties)
		for key := range value {
			if _, known := properties[key]; !known {
				if properties == nil {
					properties = map[string]apiextensionsv1.JSONSchemaProps{}
				}
				properties[key] = apiextensionsv1.JSONSchemaProps{}
			}
		}
		for _, key := range slices.Sorted(maps.Keys(properties)) {
			property := properties[key]
			below(key, &property, value[key])
		}
	case []any:
		items := &apiextensionsv1.JSONSchemaProps{}
		if schema.Items != nil {
			items = schema.Items.Schema
		}
		if len(value) > 0 {
			below(0, items, value[0])
		}
	}
	return fields
}

// forms returns JSON that is no value of the field, by what it is. One that represents a list of members is a
// duplicate.
func (f *unreadableField) forms() map[string]string {
	kind := f.schema.Type
	if kind == "" { // a field of any type counts as what it is
		switch f.value.(type) {
		case string:
			kind = "string"
		case []any:
			kind = "array"
		case map[string]any:
			kind = "object"
		}
	}
	forms := map[string]string{"as a text": `"x"`, "as a number": `7`, "as a list": `["x"]`,
		"as an object": `{"x":"y"}`, "null": `null`,
		"too deep": strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)}
	empty := map[string]string{"string": `"other"`, "array": `[]`, "object": `{}`, "boolean": `false`, "number": `0`,
		"integer": `0`}[kind]
	switch kind {
	case "string":
		if len(f.schema.Enum) == 0 {
			delete(forms, "as a text")
		}
	case "array":
		delete(forms, "as a list")
	case "object":
		delete(forms, "as an object")
	case "number", "integer":
		delete(forms, "as a number")
	}
	if _, inList := f.path[len(f.path)-1].(int); f.value != nil && empty != "" && !inList {
		value, err := json.Marshal(f.value)
		if err != nil {
			panic(err)
		}
		forms["before another value"] = string(value) + twice + empty
		forms["after another value"] = empty + twice + string(value)
	}
	return forms
}

// set sets the field in an object; nil removes it.
func (f *unreadableField) set(object any, value any) {
	for _, key := range f.path[:len(f.path)-1] {
		switch parent := object.(type) {
		case map[string]any:
			object = parent[key.(string)]
		case []any:
			object = parent[key.(int)]
		}
	}
	switch parent := object.(type) {
	case map[string]any:
		if key := f.path[len(f.path)-1].(string); value == nil {
			delete(parent, key)
		} else {
			parent[key] = value
		}
	case []any:
		parent[f.path[len(f.path)-1].(int)] = value
	}
}

// stored is the JSON of an object with the field in another form.
func (f *unreadableField) stored(t *testing.T, u *unstructured.Unstructured, form string) []byte {
	t.Helper()
	const hole = `"@hole@"`
	object := u.DeepCopy()
	f.set(object.Object, "@hole@")
	text := string(raw(t, object))
	if first, second, both := strings.Cut(form, twice); both {
		key := fmt.Sprintf("%q:", f.path[len(f.path)-1])
		return []byte(strings.Replace(text, key+hole, key+first+","+key+second, 1))
	}
	return []byte(strings.Replace(text, hole, form, 1))
}
