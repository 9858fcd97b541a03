package assets

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"github.com/opgate/opgate/e2e/assets/gotool"
	"github.com/opgate/opgate/e2e/assets/repo"
)

// moduleVersion returns the version of a module that the tool module in dir requires, such as "v1.36.3". No other place
// states which versions the tests run on.
func moduleVersion(dir, module string) (string, error) {
	path := filepath.Join(dir, "go.mod")
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("find the version of %s: %w", module, err)
	}
	file, err := modfile.ParseLax(path, data, nil)
	if err != nil {
		return "", fmt.Errorf("find the version of %s: %w", module, err)
	}
	for _, require := range file.Require {
		if require.Mod.Path == module {
			return require.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("find the version of %s: %s does not require it", module, path)
}

// PinnedVersions returns the versions of Kubernetes and OLM that tests run on, such as v1.36.3 and v0.42.0.
func PinnedVersions() (kubernetes, olm string, err error) {
	checkout, err := repo.Find()
	if err != nil {
		return "", "", err
	}
	if kubernetes, err = moduleVersion(checkout.KubernetesTools(), kubernetesModule); err != nil {
		return "", "", err
	}
	olm, err = moduleVersion(filepath.Join(filepath.Dir(checkout.KubernetesTools()), "olm"), olmModule)
	return kubernetes, olm, err
}

// moduleDir returns the directory of the source of a module that the tool module in dir requires.
func moduleDir(ctx context.Context, dir, module string) (string, error) {
	cmd := gotool.Command(ctx, dir, os.TempDir(), "list", "-m", "-f", "{{.Dir}}", module)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find the source of %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// majorMinor splits "v1.36.3" into "1" and "36".
func majorMinor(version string) (major, minor string) {
	major, minor, _ = strings.Cut(strings.TrimPrefix(semver.MajorMinor(version), "v"), ".")
	return major, minor
}
