package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/assets/gotool"
)

// Modules with manifests that operators ship. go.mod pins their versions.
const (
	operators   = "github.com/operator-framework/api"
	certManager = "github.com/cert-manager/cert-manager"
)

// bundles are files in modules, which may be patterns. "%s" is the version of the operator.
var bundles = map[string][][2]string{
	// An operator with few, small definitions.
	"M": {
		{operators, "pkg/manifests/testdata/valid_package/%s/*.clusterserviceversion.yaml"},
		{operators, "pkg/manifests/testdata/valid_package/%s/*.crd.yaml"},
		{certManager, "deploy/crds/acme.cert-manager.io_orders.yaml"},
		{certManager, "deploy/crds/cert-manager.io_certificaterequests.yaml"},
	},
	// One with the largest that are common: definitions that repeat the schema of a pod several times.
	"L": {
		{operators, "pkg/manifests/testdata/valid_package/%s/*.clusterserviceversion.yaml"},
		{certManager, "deploy/crds/*.yaml"},
		{operators, "crds/operators.coreos.com_*.yaml"},
	},
}

// What makes escapes as frequent in L-escaped as in plans in use, 9 quotes and 2 backslashes in 100 bytes: descriptions
// have few quotes, and examples, which are JSON in an annotation, have their quotes escaped twice.
const descriptionBytes, exampleShare = 64, 4

// steps are the steps of a plan for a version of etcd: the manifests of a size, as OLM writes them into plans.
func steps(ctx context.Context, size, csv string) ([]any, error) {
	var all []any
	from := size
	if size == escaped {
		from = "L"
	}
	for _, of := range bundles[from] {
		dir, err := moduleDir(ctx, of[0])
		if err != nil {
			return nil, err
		}
		pattern := strings.ReplaceAll(of[1], "%s", strings.TrimPrefix(csv, packagePrefix))
		files, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("%s has no %s (%w)", of[0], pattern, err)
		}
		for _, file := range files {
			object, err := read(file)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if size == escaped {
				cutDescriptions(object.Object)
			}
			step, err := stepOf(object, csv, size == escaped)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			all = append(all, step)
		}
	}
	return all, nil
}

func read(file string) (*unstructured.Unstructured, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	return object, yaml.Unmarshal(data, &object.Object)
}

// cutDescriptions cuts the descriptions in a definition.
func cutDescriptions(value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if text, ok := member.(string); ok && name == "description" {
				v[name] = text[:min(len(text), descriptionBytes)]
			}
			cutDescriptions(member)
		}
	case []any:
		for _, member := range v {
			cutDescriptions(member)
		}
	}
}

// stepOf is the step that creates an object, with a part of itself as an example or without. Its manifest is JSON in a string.
func stepOf(object *unstructured.Unstructured, csv string, example bool) (any, error) {
	if example {
		text, err := json.Marshal(object.Object)
		if err != nil {
			return nil, err
		}
		object.SetAnnotations(map[string]string{"alm-examples": string(text[:len(text)/exampleShare])})
	}
	manifest, err := json.Marshal(object.Object)
	if err != nil {
		return nil, err
	}
	kind := object.GroupVersionKind()
	return map[string]any{"resolving": csv, "status": "Unknown", "resource": map[string]any{
		"group": kind.Group, "version": kind.Version, "kind": kind.Kind, "name": object.GetName(),
		"sourceName": "operatorhubio-catalog", "sourceNamespace": "olm", "manifest": string(manifest)}}, nil
}

// moduleDir returns the directory of a module that this one requires.
func moduleDir(ctx context.Context, module string) (string, error) {
	out, err := gotool.Command(ctx, ".", os.TempDir(), "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find the source of %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}
