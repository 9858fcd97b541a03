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

// steps are the steps of a plan for a version of etcd: the manifests of a size, as OLM writes them into plans.
func steps(ctx context.Context, size, csv string) ([]any, error) {
	var all []any
	for _, of := range bundles[size] {
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
			step, err := stepOf(file, csv)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			all = append(all, step)
		}
	}
	return all, nil
}

// stepOf is the step that creates the object in a file. Its manifest is JSON in a string.
func stepOf(file, csv string) (any, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &object.Object); err != nil {
		return nil, err
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
