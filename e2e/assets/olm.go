package assets

import (
	"context"
	"fmt"
	"path/filepath"
)

// Modules that OLM is built from.
const (
	olmModule      = "github.com/operator-framework/operator-lifecycle-manager"
	registryModule = "github.com/operator-framework/operator-registry"
)

// OLM are the binaries of the Operator Lifecycle Manager.
type OLM struct {
	// Catalog is the catalog operator: it resolves Subscriptions, writes InstallPlans and runs them.
	Catalog string
	// Operator is the OLM operator: it brings ClusterServiceVersions to life.
	Operator string
	// PackageServer answers for PackageManifests: what the catalogs offer.
	PackageServer string
	// OPM serves file-based catalogs.
	OPM string
}

// FindOLM returns the binaries of OLM, built earlier, or now, from the Go modules pinned in e2e/tools/olm and
// e2e/tools/registry. The first build takes several minutes; later ones find the result in the cache.
func FindOLM(ctx context.Context, opts Options) (OLM, error) {
	checkout, err := opts.complete()
	if err != nil {
		return OLM{}, err
	}
	src := opts.tools(checkout, "olm", "OLM")
	src.programs = []program{
		{"catalog", olmModule + "/cmd/catalog"},
		{"olm", olmModule + "/cmd/olm"},
		{"package-server", "./package-server"},
	}
	src.own = []string{filepath.Join("package-server", "main.go")}
	operators, err := fromTools(ctx, olmModule, src)
	if err != nil {
		return OLM{}, err
	}
	src = opts.tools(checkout, "registry", "operator-registry")
	src.programs = []program{{"opm", registryModule + "/cmd/opm"}}
	// What opm could do with images needs C libraries; serving a directory does not.
	src.flags = append(src.flags, "-tags", "json1 containers_image_openpgp exclude_graphdriver_btrfs exclude_graphdriver_devicemapper")
	registry, err := fromTools(ctx, registryModule, src)
	if err != nil {
		return OLM{}, err
	}
	return OLM{
		Catalog:       filepath.Join(operators, "catalog"),
		Operator:      filepath.Join(operators, "olm"),
		PackageServer: filepath.Join(operators, "package-server"),
		OPM:           filepath.Join(registry, "opm"),
	}, nil
}

// fromTools is fromSource for the version of a module that the tool module requires.
func fromTools(ctx context.Context, module string, src source) (string, error) {
	var err error
	if src.version, err = moduleVersion(src.module, module); err != nil {
		return "", fmt.Errorf("find the binaries of %s: %w", src.title, err)
	}
	return fromSource(ctx, src)
}
