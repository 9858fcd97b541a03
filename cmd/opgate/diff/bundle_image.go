package diff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/alpha/property"
	"github.com/operator-framework/operator-registry/pkg/image"
	"github.com/operator-framework/operator-registry/pkg/registry"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/opgate/opgate/internal/text"
)

// fromBundles compares two bundles, each a directory, an OCI layout or an image of a registry; from is empty for a
// first installation.
func fromBundles(ctx context.Context, from, to string) (*result, error) {
	after, err := readBundle(ctx, to)
	if err != nil {
		return nil, err
	}
	if from == "" {
		return compareBundles(nil, after), nil
	}
	before, err := readBundle(ctx, from)
	if err != nil {
		return nil, err
	}
	return compareVersions(before, after)
}

// readBundle reads a bundle as a catalog has it, with all of its manifests.
func readBundle(ctx context.Context, source string) (*bundle, error) {
	b, err := renderBundle(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("read bundle %s: %w", text.Quote(source), err)
	}
	return b, nil
}

// renderBundle renders a bundle with operator-registry, as those who make catalogs do.
func renderBundle(ctx context.Context, source string) (*bundle, error) {
	dir, err := os.MkdirTemp("", "opgate-bundle-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	if err := unpack(ctx, source, dir); err != nil {
		return nil, err
	}
	files, err := checkManifests(filepath.Join(dir, bundleDirs[0]))
	if err != nil {
		return nil, err
	}
	logrus.SetOutput(io.Discard) // it logs which optional files are missing
	input, err := registry.NewImageInput(image.SimpleReference(source), dir)
	if err != nil {
		return nil, err
	}
	if read := input.Bundle.Size(); read != files {
		return nil, fmt.Errorf("%d of %d files in manifests are read: a bundle has one ClusterServiceVersion", read,
			files)
	}
	_, properties, err := registry.ObjectsAndPropertiesFromBundle(input.Bundle)
	if err != nil {
		return nil, err
	}
	return &bundle{Bundle: declcfg.Bundle{Schema: declcfg.SchemaBundle, Name: input.Bundle.Name,
		Package: input.Bundle.Package, Image: source,
		Properties: properties}}, nil
}

// checkManifests returns the number of manifests. One that is not an object is an error: OLM would not install it, and
// a digest without it would stand for another change.
func checkManifests(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if err := checkManifest(filepath.Join(dir, e.Name())); err != nil {
			return 0, fmt.Errorf("manifests/%s cannot be read: %w", text.Escape(e.Name()), err)
		}
		n++
	}
	return n, nil
}

func checkManifest(name string) error {
	file, err := os.Open(name) //nolint:gosec // a file of the directory that the user names
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	var object unstructured.Unstructured
	err = utilyaml.NewYAMLOrJSONDecoder(file, 4096).Decode(&object)
	if errors.Is(err, io.EOF) || err == nil && object.Object == nil {
		return errors.New("it is empty")
	}
	return err
}

// pull adds the manifests of the image that a catalog names, where the catalog has none.
func (b *bundle) pull(ctx context.Context) error {
	if b.hasManifests() {
		return nil
	}
	if b.Image == "" {
		return fmt.Errorf("the catalog names no image of %s", text.Name(b.Name))
	}
	pulled, err := readBundle(ctx, b.Image)
	if err != nil {
		return err
	}
	if pulled.Name != b.Name || pulled.Package != b.Package {
		return fmt.Errorf("image %s has %s of package %s, and the catalog has it as %s of package %s",
			text.Name(b.Image), text.Name(pulled.Name),
			text.Name(pulled.Package), text.Name(b.Name), text.Name(b.Package))
	}
	for _, p := range pulled.Properties {
		if p.Type == property.TypeBundleObject {
			b.Properties = append(b.Properties, p)
		}
	}
	return nil
}

func (b *bundle) hasManifests() bool {
	for _, p := range b.Properties {
		if p.Type == property.TypeBundleObject {
			return true
		}
	}
	return false
}
