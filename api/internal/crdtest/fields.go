package crdtest

import (
	"encoding/json"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Fields are all fields in a schema, by their path, such as "spec.dependencies[].kind".
func Fields(properties map[string]apiextensionsv1.JSONSchemaProps) map[string]apiextensionsv1.JSONSchemaProps {
	fields := map[string]apiextensionsv1.JSONSchemaProps{}
	var walk func(prefix string, properties map[string]apiextensionsv1.JSONSchemaProps)
	walk = func(prefix string, properties map[string]apiextensionsv1.JSONSchemaProps) {
		for name, property := range properties {
			fields[prefix+name] = property
			walk(prefix+name+".", property.Properties)
			if property.Items != nil {
				walk(prefix+name+"[].", property.Items.Schema.Properties)
			}
		}
	}
	walk("", properties)
	return fields
}

// Enum are the words that a field may have.
func Enum(t *testing.T, property apiextensionsv1.JSONSchemaProps) (words []string) {
	t.Helper()
	for _, value := range property.Enum {
		var word string
		if err := json.Unmarshal(value.Raw, &word); err != nil {
			t.Fatal(err)
		}
		words = append(words, word)
	}
	return words
}
