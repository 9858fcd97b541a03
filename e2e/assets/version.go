package assets

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// moduleVersion returns the version of a module that the tool module in dir requires, such as "v1.36.3". No other place says
// which versions the tests run on.
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

// majorMinor splits "v1.36.3" into "1" and "36".
func majorMinor(version string) (major, minor string) {
	major, minor, _ = strings.Cut(strings.TrimPrefix(semver.MajorMinor(version), "v"), ".")
	return major, minor
}
