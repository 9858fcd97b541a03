package crdschema

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apifield "k8s.io/apimachinery/pkg/util/validation/field"
)

// Keywords are what the keywords of a schema demand of a decoded value: its enums, and the bounds of texts, lists and
// numbers. They cost a fiftieth of Validate, so that each event can be checked.
type Keywords struct {
	// index and name are those of a field of a struct.
	index int
	name  string
	// value are the keywords of the value itself, isRequired is set where the schema requires it.
	value      *structural.ValueValidation
	enum       []string
	isRequired bool
	// fields are those of a struct, items is the element of a list; nil if the schema demands nothing of them.
	fields []*Keywords
	items  *Keywords
}

// KeywordsOf returns what the schema demands of a field of the object that is decoded into a type.
func (s *Schema) KeywordsOf(field string, t reflect.Type) *Keywords {
	property := s.structural.Properties[field]
	return keywordsOf(&property, t)
}

// keywordsOf returns nil if nothing is demanded.
func keywordsOf(s *structural.Structural, t reflect.Type) *Keywords {
	k := &Keywords{value: s.ValueValidation}
	if k.value == nil {
		k.value = &structural.ValueValidation{}
	}
	for _, value := range k.value.Enum {
		k.enum = append(k.enum, fmt.Sprint(value.Object))
	}
	switch t.Kind() {
	case reflect.Pointer:
		return keywordsOf(s, t.Elem())
	case reflect.Slice:
		if s.Items != nil {
			k.items = keywordsOf(s.Items, t.Elem())
		}
	case reflect.Struct:
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			property, known := s.Properties[name]
			if !known {
				continue
			}
			if f := keywordsOf(&property, t.Field(i).Type); f != nil {
				f.index, f.name, f.isRequired = i, name, slices.Contains(k.value.Required, name)
				k.fields = append(k.fields, f)
			}
		}
		if len(k.fields) == 0 {
			return nil
		}
	}
	v := k.value
	if len(k.fields) == 0 && k.items == nil && len(k.enum) == 0 && v.MaxLength == nil && v.MaxItems == nil &&
		v.MinItems == nil && v.Minimum == nil && v.Maximum == nil {
		return nil
	}
	return k
}

// Check returns what is wrong with a value at a path, at most limit faults. A text or a number that is empty counts as
// one that is left out, and is no fault unless the schema requires one of some words.
func (k *Keywords) Check(path *apifield.Path, value any, limit int) (errs apifield.ErrorList) {
	k.check(path, reflect.Indirect(reflect.ValueOf(value)), limit, &errs)
	return errs
}

func (k *Keywords) check(path *apifield.Path, v reflect.Value, limit int, errs *apifield.ErrorList) {
	add := func(err *apifield.Error) {
		if len(*errs) < limit {
			*errs = append(*errs, err)
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			k.check(path, v.Elem(), limit, errs)
		}
	case reflect.Struct:
		for _, f := range k.fields {
			if field := v.Field(f.index); f.isRequired || !field.IsZero() {
				f.check(path.Child(f.name), field, limit, errs)
			}
		}
	case reflect.Slice:
		if bound := k.value.MaxItems; bound != nil && int64(v.Len()) > *bound {
			add(apifield.TooMany(path, v.Len(), int(*bound)))
			return // what is wrong with each would take memory without bound
		}
		for i := 0; k.items != nil && i < v.Len(); i++ {
			k.items.check(path.Index(i), v.Index(i), limit, errs)
		}
	case reflect.String:
		switch bound, text := k.value.MaxLength, v.String(); {
		case bound != nil && int64(utf8.RuneCountInString(text)) > *bound:
			add(apifield.TooLong(path, "", int(*bound)))
		case len(k.enum) == 0 || slices.Contains(k.enum, text):
		case text == "":
			add(apifield.Required(path, fmt.Sprintf("must be one of %q", k.enum)))
		default:
			add(apifield.NotSupported(path, text, k.enum))
		}
	case reflect.Int32, reflect.Int64:
		number := float64(v.Int())
		switch least, most := k.value.Minimum, k.value.Maximum; {
		case least != nil && number < *least:
			add(apifield.Invalid(path, v.Int(), fmt.Sprintf("must be at least %v", *least)))
		case most != nil && number > *most:
			add(apifield.Invalid(path, v.Int(), fmt.Sprintf("must be at most %v", *most)))
		}
	}
}
