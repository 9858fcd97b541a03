package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/operator-framework/api/crds"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// InstallOLM creates OLM's resource definitions where Options left them out, and waits until all are served.
func (c *Cluster) InstallOLM(ctx context.Context) error {
	definitions, dir := olmCRDs()
	return installCRDs(ctx, c.plane.masters, definitions, dir)
}

// installCRDs creates resource definitions and those in the directories that are given, and waits until all are served.
func installCRDs(
	ctx context.Context, config *rest.Config, definitions []*apiextensionsv1.CustomResourceDefinition, dirs ...string,
) error {
	options := envtest.CRDInstallOptions{CRDs: definitions, MaxTime: requestTimeout, ErrorIfPathMissing: true}
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		manifests, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			return fmt.Errorf("install CRDs: %w", err)
		}
		if len(manifests) == 0 {
			return fmt.Errorf("install CRDs: no *.yaml in %s: %w", dir, os.ErrNotExist)
		}
		options.Paths = append(options.Paths, dir)
	}
	err := speed.Poll(ctx, pollInterval, componentTimeout, func(context.Context) (bool, error) {
		_, err := envtest.InstallCRDs(config, options)
		if wait.Interrupted(err) { // they were not served within MaxTime
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return fmt.Errorf("install CRDs: %w", err)
	}
	return nil
}

// olmCRDs are the resource definitions of OLM: those that its own API module publishes, or those in the directory of
// the OLM that assets.OLMVariable names.
func olmCRDs() (definitions []*apiextensionsv1.CustomResourceDefinition, dir string) {
	if dir = assets.OLMCRDs(); dir != "" {
		return nil, dir
	}
	return []*apiextensionsv1.CustomResourceDefinition{
		crds.CatalogSource(),
		crds.ClusterServiceVersion(),
		crds.InstallPlan(),
		crds.OLMConfig(),
		crds.Operator(),
		crds.OperatorCondition(),
		crds.OperatorGroup(),
		crds.Subscription(),
	}, ""
}
