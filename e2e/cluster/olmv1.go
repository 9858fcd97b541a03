package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/assets/gotool"
	"github.com/opgate/opgate/e2e/assets/repo"
)

// olmv1Module has the definitions of OLM v1: ClusterExtension, ClusterCatalog, and ClusterObjectSet, which is behind a
// feature gate there.
const olmv1Module = "github.com/operator-framework/operator-controller"

// extensionsRole lets the tenant write objects of OLM v1, which no role of Kubernetes does.
const extensionsRole = "opgate-e2e-extensions"

// InstallOLMv1 creates the definitions of OLM v1, of the version that e2e/tools/olmv1 pins, and waits until they are
// served. The tenant may write their objects. OLM v1 itself does not run.
func (c *Cluster) InstallOLMv1(ctx context.Context) error {
	checkout, err := repo.Find()
	if err != nil {
		return err
	}
	out, err := gotool.Command(ctx, filepath.Join(checkout.Root, "e2e", "tools", "olmv1"), c.dir,
		"mod", "download", "-json", olmv1Module).Output()
	if err != nil {
		return fmt.Errorf("download module %s: %w", olmv1Module, errors.Join(err, ctx.Err()))
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return fmt.Errorf("find module %s: %w", olmv1Module, err)
	}
	config, err := c.RESTConfig(Admin)
	if err != nil {
		return err
	}
	admin, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: extensionsRole}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"olm.operatorframework.io"},
			Resources: []string{"clusterextensions", "clustercatalogs"},
			Verbs:     []string{"get", "create", "patch"}}}},
		clusterBinding(extensionsRole, extensionsRole, userSubject(Tenant)),
	} {
		if err := client.IgnoreAlreadyExists(admin.Create(ctx, object)); err != nil {
			return fmt.Errorf("set up permissions: %w", err)
		}
	}
	base := filepath.Join(module.Dir, "helm", "olmv1", "base")
	revision := &apiextensionsv1.CustomResourceDefinition{}
	text, err := os.ReadFile(filepath.Join(base, "operator-controller", "crd", "experimental",
		"olm.operatorframework.io_clusterobjectsets.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, revision)
	}
	if err != nil {
		return fmt.Errorf("read the definition of ClusterObjectSets: %w", err)
	}
	return installCRDs(ctx, c.plane.masters, []*apiextensionsv1.CustomResourceDefinition{revision},
		filepath.Join(base, "operator-controller", "crd", "standard"),
		filepath.Join(base, "catalogd", "crd", "standard"))
}
