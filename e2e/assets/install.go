package assets

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/opgate/opgate/e2e/assets/repo"
)

// Modules that the tools of an installation are built from.
const (
	helmModule        = "helm.sh/helm/v4"
	helm3Module       = "helm.sh/helm/v3"
	certManagerModule = "github.com/cert-manager/cert-manager"
	prometheusModule  = "github.com/prometheus/prometheus"
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
	return findHelm(ctx, opts, "helm", helmModule)
}

// FindHelm3 returns the path of helm of the version before, which e2e/tools/helm3 requires, built earlier, or now. The
// versions of its libraries are those of e2e/tools/helm, so that most of it is compiled once.
func FindHelm3(ctx context.Context, opts Options) (string, error) {
	return findHelm(ctx, opts, "helm3", helm3Module)
}

// kubernetesFlag makes helm know the version of Kubernetes that it assumes without a cluster, as its releases do. Helm
// 4 finds it by itself.
func kubernetesFlag(tools, module string) (string, error) {
	if module != helm3Module {
		return "", nil
	}
	client, err := moduleVersion(tools, "k8s.io/client-go")
	if err != nil {
		return "", err
	}
	const variable = " -X " + helm3Module + "/pkg/chartutil.k8sVersion"
	minor := strings.Split(client, ".")[1] // of v0.MINOR.PATCH
	return variable + "Major=1" + variable + "Minor=" + minor, nil
}

func findHelm(ctx context.Context, opts Options, tools, module string) (string, error) {
	checkout, err := opts.complete()
	if err != nil {
		return "", err
	}
	src := opts.tools(checkout, tools, "Helm")
	if src.version, err = moduleVersion(src.module, module); err != nil {
		return "", fmt.Errorf("find helm: %w", err)
	}
	assumed, err := kubernetesFlag(src.module, module)
	if err != nil {
		return "", fmt.Errorf("find helm: %w", err)
	}
	src.programs = []program{{"helm", module + "/cmd/helm"}}
	src.flags = []string{"-trimpath", "-ldflags", "-s -w -X " + module + "/internal/version.version=" + src.version +
		assumed}
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

// FindCertManager returns the binaries of cert-manager, of the version that e2e/tools/certmanager requires, built
// earlier, or now.
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

// Prometheus are the binaries of Prometheus.
type Prometheus struct {
	// Server scrapes, and answers queries.
	Server string
	// Promtool checks and tests rules.
	Promtool string
}

// FindPrometheus returns the binaries of Prometheus, of the version that e2e/tools/prometheus requires, built earlier,
// or now.
func FindPrometheus(ctx context.Context, opts Options) (Prometheus, error) {
	checkout, err := opts.complete()
	if err != nil {
		return Prometheus{}, err
	}
	src := opts.tools(checkout, "prometheus", "Prometheus")
	src.programs = []program{{"prometheus", prometheusModule + "/cmd/prometheus"},
		{"promtool", prometheusModule + "/cmd/promtool"}}
	// Targets come from files; without the clients of clouds there are a third fewer packages to build.
	src.flags = append(src.flags, "-tags", "remove_all_sd")
	dir, err := fromTools(ctx, prometheusModule, src)
	return Prometheus{Server: filepath.Join(dir, "prometheus"), Promtool: filepath.Join(dir, "promtool")}, err
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
