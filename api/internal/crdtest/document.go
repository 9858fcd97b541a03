package crdtest

import (
	"io/fs"
	"os"
	"testing"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Document reads a YAML document of directory testdata, as the JSON that the API server would be sent.
func Document(t *testing.T, name string) []byte {
	t.Helper()
	text, err := fs.ReadFile(os.DirFS("testdata"), name)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = yaml.YAMLToJSONStrict(text); err != nil {
		t.Fatal(err)
	}
	return text
}

// Object decodes an object as the API server does that has no Go type for it.
func Object(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var obj map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// Decode decodes an object into a Go type. It fails on a field that the type does not have.
func Decode(t *testing.T, text []byte, into any) {
	t.Helper()
	strict, err := kjson.UnmarshalStrict(text, into)
	if err != nil || len(strict) > 0 {
		t.Fatalf("decode: %v %v", err, strict)
	}
}
