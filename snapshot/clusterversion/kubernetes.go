package clusterversion

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/blang/semver/v4"
	"k8s.io/apimachinery/pkg/version"
)

// readKubernetes reads the version of the API server.
func (w *Watcher) readKubernetes(ctx context.Context) error {
	raw, err := w.discovery.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return err
	}
	var info version.Info
	if err := json.Unmarshal(raw, &info); err != nil {
		return fmt.Errorf("read the version: %w", err)
	}
	kubernetes, err := kubernetesVersion(info.GitVersion)
	if err != nil {
		return err
	}
	w.update(func() { w.kubernetes = kubernetes })
	return nil
}

// kubernetesVersion truncates a gitVersion, such as v1.36.3-eks-1234+abc, to what OLM compares minKubeVersion with:
// suffixes of vendors would make it a pre-release, which is less than the release.
func kubernetesVersion(gitVersion string) (string, error) {
	v := strings.TrimPrefix(gitVersion, "v")
	if i := strings.IndexAny(v, "-+"); i >= 0 {
		v = v[:i]
	}
	if _, err := semver.Parse(v); err != nil {
		return "", fmt.Errorf("version %q of the API server is not a semantic version: %w", gitVersion, err)
	}
	return v, nil
}
