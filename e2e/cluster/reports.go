package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/assets/gotool"
	"github.com/opgate/opgate/e2e/assets/repo"
)

// reportsModule has the types of OpenReports that Opgate is built with, and their definitions.
const reportsModule = "github.com/openreports/reports-api"

// InstallReports creates the definitions of OpenReports, of the version that Opgate is built with, and waits until they
// are served.
func (c *Cluster) InstallReports(ctx context.Context) error {
	checkout, err := repo.Find()
	if err != nil {
		return err
	}
	out, err := gotool.Command(ctx, checkout.Root, c.dir, "list", "-m", "-f", "{{.Dir}}", reportsModule).Output()
	if err != nil {
		return fmt.Errorf("find module %s: %w", reportsModule, errors.Join(err, ctx.Err()))
	}
	return installCRDs(ctx, c.plane.masters, nil, filepath.Join(strings.TrimSpace(string(out)), "config", "crd"))
}

// GrantReports creates the role and the binding for Reports that Opgate is shipped with.
func (c *Cluster) GrantReports(ctx context.Context) error {
	config, err := c.RESTConfig(Admin)
	if err != nil {
		return err
	}
	admin, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	objects, err := reportsRBAC()
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := admin.Create(ctx, object); err != nil {
			return fmt.Errorf("set up permissions: %w", err)
		}
	}
	return nil
}

func reportsRBAC() ([]client.Object, error) {
	checkout, err := repo.Find()
	if err != nil {
		return nil, err
	}
	return readRBAC(filepath.Join(checkout.Manifests(), "components", "reports", "rbac.yaml"))
}

func reportsRules() (rules []rbacv1.PolicyRule, err error) {
	objects, err := reportsRBAC()
	for _, object := range objects {
		if role, ok := object.(*rbacv1.ClusterRole); ok {
			rules = append(rules, role.Rules...)
		}
	}
	return rules, err
}
