package assets

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opgate/opgate/e2e/assets/repo"
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

// OLMVariable names the directory that FindOLM takes the binaries from, as KUBEBUILDER_ASSETS does for Find.
const OLMVariable = "OPGATE_E2E_OLM"

// olmNames are the binaries of such a directory.
var olmNames = [...]string{"catalog", "olm", "package-server", "opm"}

// OLMCRDs is the directory of OLM's resource definitions in the directory that OLMVariable names, and empty if it names
// none.
func OLMCRDs() string {
	if dir := os.Getenv(OLMVariable); dir != "" {
		return filepath.Join(dir, "crds")
	}
	return ""
}

// FindOLM returns the binaries of OLM: those in the directory that OLMVariable names, or those built earlier, or now,
// from the Go modules pinned in e2e/tools/olm and e2e/tools/registry. The first build takes several minutes; later ones
// find the result in the cache.
func FindOLM(ctx context.Context, opts Options) (OLM, error) {
	if dir := os.Getenv(OLMVariable); dir != "" {
		if err := checkExecutables(dir, olmNames[:]); err != nil {
			return OLM{}, fmt.Errorf("%s=%s: %w", OLMVariable, dir, err)
		}
		return olmIn(dir, dir), nil
	}
	checkout, err := opts.complete()
	if err != nil {
		return OLM{}, err
	}
	operators, err := fromTools(ctx, olmModule, olmSource(opts.tools(checkout, "olm", "OLM")))
	if err != nil {
		return OLM{}, err
	}
	registry, err := findRegistry(ctx, opts, checkout)
	if err != nil {
		return OLM{}, err
	}
	return olmIn(operators, registry), nil
}

// olmIn are the binaries in directories.
func olmIn(operators, registry string) OLM {
	return OLM{
		Catalog:       filepath.Join(operators, "catalog"),
		Operator:      filepath.Join(operators, "olm"),
		PackageServer: filepath.Join(operators, "package-server"),
		OPM:           filepath.Join(registry, "opm"),
	}
}

// olmSource adds OLM's programs to a tool module that requires it.
func olmSource(src source) source {
	src.programs = []program{
		{"catalog", olmModule + "/cmd/catalog"},
		{"olm", olmModule + "/cmd/olm"},
		{"package-server", "./package-server"},
	}
	src.own = []string{filepath.Join("package-server", "main.go")}
	return src
}

// findRegistry returns the directory of opm.
func findRegistry(ctx context.Context, opts Options, checkout repo.Checkout) (string, error) {
	src := opts.tools(checkout, "registry", "operator-registry")
	src.programs = []program{{"opm", registryModule + "/cmd/opm"}}
	// What opm could do with images needs C libraries; serving a directory does not.
	src.flags = append(src.flags, "-tags",
		"json1 containers_image_openpgp exclude_graphdriver_btrfs exclude_graphdriver_devicemapper")
	return fromTools(ctx, registryModule, src)
}

// fromTools is fromSource for the version of a module that the tool module requires.
func fromTools(ctx context.Context, module string, src source) (string, error) {
	var err error
	if src.version, err = moduleVersion(src.module, module); err != nil {
		return "", fmt.Errorf("find the binaries of %s: %w", src.title, err)
	}
	return fromSource(ctx, src)
}
