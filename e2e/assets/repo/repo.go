// Package repo has the paths in a checkout of this repository.
package repo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/mod/modfile"
)

// module is the root module. Those in folders of it have modules of their own.
const module = "github.com/opgate/opgate"

// Checkout is a checkout of the repository. All paths derived from it are absolute.
type Checkout struct {
	// Root is the directory of the root module.
	Root string
}

// Find locates the checkout that holds the working directory: the nearest directory above it with the go.mod of the
// root module.
func Find() (Checkout, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Checkout{}, fmt.Errorf("find the repository: %w", err)
	}
	for start := dir; ; {
		found, err := moduleOf(dir)
		if err != nil {
			return Checkout{}, fmt.Errorf("find the repository: %w", err)
		}
		if found == module {
			return Checkout{Root: dir}, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return Checkout{}, fmt.Errorf("%s is not inside a checkout of %s", start, module)
		}
		dir = parent
	}
}

// moduleOf returns the module path declared by the go.mod in dir, or "" when there is none.
func moduleOf(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return modfile.ModulePath(data), nil
}

// KubernetesTools is the directory of the tool module that pins kube-apiserver, etcd and kubectl.
func (c Checkout) KubernetesTools() string {
	return filepath.Join(c.Root, "e2e", "tools", "kubernetes")
}

// CRDs is the directory of Opgate's CustomResourceDefinitions, as they are generated.
func (c Checkout) CRDs() string { return filepath.Join(c.Root, "manifests", "crd") }

// Manifests is the directory of the manifests to install.
func (c Checkout) Manifests() string { return filepath.Join(c.Root, "manifests") }

// Chart is the directory of Opgate's Helm chart.
func (c Checkout) Chart() string { return filepath.Join(c.Manifests(), "chart", "opgate") }

// ChartCRDs is the directory of the chart's copies of Opgate's CustomResourceDefinitions.
func (c Checkout) ChartCRDs() string { return filepath.Join(c.Chart(), "files", "crds") }

// Webhooks is the file with Opgate's webhook configurations.
func (c Checkout) Webhooks() string { return filepath.Join(c.Manifests(), "base", "webhooks.yaml") }

// Roles is the file with Opgate's permissions.
func (c Checkout) Roles() string { return filepath.Join(c.Manifests(), "base", "rbac.yaml") }

// Deployment is the file with Opgate's Deployment, as the chart renders it with its default values.
func (c Checkout) Deployment() string { return filepath.Join(c.Manifests(), "base", "deployment.yaml") }

// Local is the directory of the control plane that "make up" keeps running.
func (c Checkout) Local() string { return filepath.Join(c.Root, ".local") }
