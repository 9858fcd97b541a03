package assets

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/opgate/opgate/e2e/internal/repo"
)

// Modules that the tools of an installation are built from.
const (
	helmModule        = "helm.sh/helm/v4"
	certManagerModule = "github.com/cert-manager/cert-manager"
)

// FindControllers returns the path of kube-controller-manager, of the version that e2e/tools/kubernetes requires, built
// earlier, or now.
func FindControllers(ctx context.Context, opts Options) (string, error) {
	checkout, err := opts.complete()
	if err != nil {
		return "", err
	}
	version, err := moduleVersion(checkout.KubernetesTools(), kubernetesModule)
	if err != nil {
		return "", err
	}
	const name = "kube-controller-manager"
	src := kubernetes(checkout.KubernetesTools(), version, opts)
	src.title, src.name = "Kubernetes' controllers", "controllers"
	src.programs = []program{{name, kubernetesModule + "/cmd/" + name}}
	dir, err := fromSource(ctx, src)
	return filepath.Join(dir, name), err
}

// FindHelm returns the path of helm, of the version that e2e/tools/helm requires, built earlier, or now.
func FindHelm(ctx context.Context, opts Options) (string, error) {
	checkout, err := opts.complete()
	if err != nil {
		return "", err
	}
	src := opts.tools(checkout, "helm", "Helm")
	if src.version, err = moduleVersion(src.module, helmModule); err != nil {
		return "", fmt.Errorf("find helm: %w", err)
	}
	src.programs = []program{{"helm", helmModule + "/cmd/helm"}}
	src.flags = []string{"-trimpath", "-ldflags", "-s -w -X " + helmModule + "/internal/version.version=" + src.version}
	dir, err := fromSource(ctx, src)
	return filepath.Join(dir, "helm"), err
}

// CertManager are the binaries of cert-manager. Each takes --kubeconfig.
type CertManager struct {
	// Controller has Issuers and Certificates become Secrets.
	Controller string
	// CAInjector writes caBundle.
	CAInjector string
	// CRDs is the directory of its resource definitions.
	CRDs string
}

// FindCertManager returns the binaries of cert-manager, of the version that e2e/tools/certmanager requires, built earlier, or
// now.
func FindCertManager(ctx context.Context, opts Options) (CertManager, error) {
	checkout, err := opts.complete()
	if err != nil {
		return CertManager{}, err
	}
	src := opts.tools(checkout, "certmanager", "cert-manager")
	src.programs = []program{{"controller", "./controller"}, {"cainjector", "./cainjector"}}
	src.own = []string{filepath.Join("controller", "main.go"), filepath.Join("cainjector", "main.go")}
	dir, err := fromTools(ctx, certManagerModule, src)
	if err != nil {
		return CertManager{}, err
	}
	module, err := moduleDir(ctx, src.module, certManagerModule)
	if err != nil {
		return CertManager{}, err
	}
	return CertManager{
		Controller: filepath.Join(dir, "controller"),
		CAInjector: filepath.Join(dir, "cainjector"),
		CRDs:       filepath.Join(module, "deploy", "crds"),
	}, nil
}

// tools is what all tool modules have in common.
func (o *Options) tools(checkout repo.Checkout, name, title string) source {
	return source{
		title:  title,
		name:   name,
		module: filepath.Join(filepath.Dir(checkout.KubernetesTools()), name),
		flags:  []string{"-trimpath", "-ldflags", "-s -w"},
		cache:  o.CacheDir,
		log:    o.Log,
	}
}
