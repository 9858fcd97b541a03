package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/operator-framework/api/crds"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// InstallOLM creates OLM's resource definitions where Options left them out, and waits until all are served.
func (c *Cluster) InstallOLM(ctx context.Context) error {
	options := envtest.CRDInstallOptions{CRDs: olmCRDs(), MaxTime: componentTimeout}
	if _, err := envtest.InstallCRDs(c.plane.masters(), options); err != nil {
		return fmt.Errorf("install CRDs: %w", errors.Join(err, ctx.Err()))
	}
	return nil
}

// installCRDs creates resource definitions and those in dir, if it is given, and waits until all are served.
func installCRDs(ctx context.Context, config *rest.Config, dir string, definitions []*apiextensionsv1.CustomResourceDefinition) error {
	options := envtest.CRDInstallOptions{CRDs: definitions, MaxTime: componentTimeout}
	if dir != "" {
		manifests, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			return fmt.Errorf("install CRDs: %w", err)
		}
		if len(manifests) == 0 {
			return fmt.Errorf("install CRDs: no *.yaml in %s: %w", dir, os.ErrNotExist)
		}
		options.Paths, options.ErrorIfPathMissing = []string{dir}, true
	}
	if _, err := envtest.InstallCRDs(config, options); err != nil {
		return fmt.Errorf("install CRDs: %w", errors.Join(err, ctx.Err()))
	}
	return nil
}

// olmCRDs are the resource definitions of OLM, as its own API module publishes them.
func olmCRDs() []*apiextensionsv1.CustomResourceDefinition {
	return []*apiextensionsv1.CustomResourceDefinition{
		crds.CatalogSource(),
		crds.ClusterServiceVersion(),
		crds.InstallPlan(),
		crds.OLMConfig(),
		crds.Operator(),
		crds.OperatorCondition(),
		crds.OperatorGroup(),
		crds.Subscription(),
	}
}
