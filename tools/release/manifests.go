package release

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/tools/image"
)

// installFiles are the manifests for kubectl, and the overlays that they are built from.
var installFiles = map[string]string{"install.yaml": "self-managed", "install-openshift.yaml": "openshift"}

// buildManifests builds an overlay of the manifests with the image of a release, by tag and digest.
func buildManifests(manifests, overlay string, version Version, digest string) ([]byte, error) {
	temp, err := os.MkdirTemp("", "opgate-manifests-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	// kustomize follows links, and wants relative paths.
	if temp, err = filepath.EvalSymlinks(temp); err != nil {
		return nil, err
	}
	if manifests, err = filepath.EvalSymlinks(manifests); err != nil {
		return nil, err
	}
	relative, err := filepath.Rel(temp, filepath.Join(manifests, "overlays", overlay))
	if err != nil {
		return nil, err
	}
	kustomization, err := yaml.Marshal(types.Kustomization{
		Resources: []string{relative},
		Images:    []types.Image{{Name: image.Name, NewTag: version.Tag, Digest: digest}},
		Labels:    []types.Label{{Pairs: map[string]string{"app.kubernetes.io/version": version.Tag}}},
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(temp, "kustomization.yaml"), kustomization, 0o600); err != nil {
		return nil, err
	}
	opts := krusty.MakeDefaultOptions()
	opts.Reorder = krusty.ReorderOptionLegacy // as kubectl does: namespaces and definitions first
	built, err := krusty.MakeKustomizer(opts).Run(filesys.MakeFsOnDisk(), temp)
	if err != nil {
		return nil, fmt.Errorf("build the manifests of overlay %s: %w", overlay, err)
	}
	return built.AsYaml()
}
