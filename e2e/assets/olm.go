package assets

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/opgate/opgate/e2e/internal/repo"
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
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	if err := opts.setCacheDir(); err != nil {
		return OLM{}, err
	}
	checkout, err := repo.Find()
	if err != nil {
		return OLM{}, err
	}
	tools := filepath.Dir(checkout.KubernetesTools())
	operators, err := fromTools(ctx, olmModule, source{
		title:  "OLM",
		name:   "olm",
		module: filepath.Join(tools, "olm"),
		programs: []program{
			{"catalog", olmModule + "/cmd/catalog"},
			{"olm", olmModule + "/cmd/olm"},
			{"package-server", "./package-server"},
		},
		own:   []string{filepath.Join("package-server", "main.go")},
		flags: []string{"-trimpath", "-ldflags", "-s -w"},
		cache: opts.CacheDir,
		log:   opts.Log,
	})
	if err != nil {
		return OLM{}, err
	}
	registry, err := fromTools(ctx, registryModule, source{
		title:    "operator-registry",
		name:     "registry",
		module:   filepath.Join(tools, "registry"),
		programs: []program{{"opm", registryModule + "/cmd/opm"}},
		// What opm could do with images needs C libraries; serving a directory does not.
		flags: []string{
			"-trimpath", "-ldflags", "-s -w",
			"-tags", "json1 containers_image_openpgp exclude_graphdriver_btrfs exclude_graphdriver_devicemapper",
		},
		cache: opts.CacheDir,
		log:   opts.Log,
	})
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
