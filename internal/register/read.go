package register

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const definitionKind = "CustomResourceDefinition"

// kinds are those that can be registered, and their resources. All else is for any user who installs Opgate.
var kinds = map[string]schema.GroupVersionResource{
	definitionKind: {Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"},
	"MutatingWebhookConfiguration": {Group: "admissionregistration.k8s.io", Version: "v1",
		Resource: "mutatingwebhookconfigurations"},
	"ValidatingWebhookConfiguration": {Group: "admissionregistration.k8s.io", Version: "v1",
		Resource: "validatingwebhookconfigurations"},
}

// read returns the objects in the files of a directory, definitions first.
func read(directory string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		data, err := os.ReadFile(file) //nolint:gosec // the directory is an option of the process
		if err != nil {
			return nil, err
		}
		more, err := decode(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		objects = append(objects, more...)
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("%s holds no manifest in files that end in .yaml", directory)
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return cmp.Compare(order(a), order(b)) })
	return objects, nil
}

// order puts definitions before webhook configurations.
func order(object *unstructured.Unstructured) int {
	if object.GetKind() == definitionKind {
		return 0
	}
	return 1
}

// decode returns the objects in documents of YAML. It is an error if one is of another kind.
func decode(data []byte) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(object.Object) == 0:
			continue
		}
		resource, ok := kinds[object.GetKind()]
		if !ok || object.GroupVersionKind().GroupVersion() != resource.GroupVersion() || object.GetName() == "" {
			return nil, fmt.Errorf("%s %s %q cannot be registered: want a CustomResourceDefinition or a webhook configuration, with its name",
				object.GetAPIVersion(), object.GetKind(), object.GetName())
		}
		objects = append(objects, object)
	}
}
