package diff

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/pkg/image"
	"github.com/operator-framework/operator-registry/pkg/registry"
	"github.com/sirupsen/logrus"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/internal/yamlsize"
)

// maxBundleFiles is the number of files of a bundle above which it is not read.
const maxBundleFiles = 2000

// bundleDirs are the folders of a bundle.
var bundleDirs = []string{"manifests", "metadata"}

// fromBundles compares two bundles in directories; from is empty for a first installation.
func fromBundles(from, to string) (*result, error) {
	var bundles [2]*declcfg.Bundle
	for i, dir := range []string{from, to} {
		if dir == "" {
			continue
		}
		var err error
		if bundles[i], err = renderBundle(dir); err != nil {
			return nil, fmt.Errorf("read bundle %s: %w", text.Quote(dir), err)
		}
	}
	return compareBundles(bundles[0], bundles[1])
}

// renderBundle renders a bundle with operator-registry, as those who make catalogs do, with all of its manifests.
func renderBundle(dir string) (*declcfg.Bundle, error) {
	manifests, err := checkFiles(dir)
	if err != nil {
		return nil, err
	}
	logrus.SetOutput(io.Discard) // it logs which optional files are missing
	input, err := registry.NewImageInput(image.SimpleReference(dir), dir)
	if err != nil {
		return nil, err
	}
	if read := input.Bundle.Size(); read != manifests {
		return nil, fmt.Errorf("%d of %d files in manifests are read: each has an object, and one a ClusterServiceVersion",
			read, manifests)
	}
	_, properties, err := registry.ObjectsAndPropertiesFromBundle(input.Bundle)
	if err != nil {
		return nil, err
	}
	return &declcfg.Bundle{Name: input.Bundle.Name, Package: input.Bundle.Package, Properties: properties}, nil
}

// checkFiles returns the number of manifests of a bundle. Errors: a folder is missing, or a file is none that is read: a
// digest without it would stand for another change.
func checkFiles(dir string) (manifests int, err error) {
	left, files := int64(maxBundle), 0
	for _, folder := range bundleDirs {
		entries, err := os.ReadDir(filepath.Join(dir, folder))
		if err != nil {
			return 0, fmt.Errorf("%w: name a directory with folders manifests and metadata", err)
		}
		for _, e := range entries {
			name := path.Join(folder, e.Name())
			if e.IsDir() || strings.HasPrefix(e.Name(), ".") {
				continue
			}
			if !e.Type().IsRegular() { // reading a pipe would block, and a link may leave the directory
				return 0, fmt.Errorf("%s is not a regular file", text.Name(name))
			}
			info, err := e.Info()
			if err != nil {
				return 0, err
			}
			files++
			if left -= info.Size(); left < 0 || files > maxBundleFiles {
				return 0, fmt.Errorf("the bundle has more than %d bytes or %d files, and is not read", maxBundle, maxBundleFiles)
			}
			content, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // a file of the directory that the user names
			if err == nil {
				if err = yamlsize.CheckAliases(content, maxBundle); !errors.Is(err, yamlsize.ErrTooLarge) {
					err = nil // what is no YAML is named below
				}
			}
			if folder == bundleDirs[0] {
				manifests++
			}
			if err != nil {
				return 0, fmt.Errorf("%s cannot be read: %w", text.Escape(name), err)
			}
		}
	}
	return manifests, nil
}
