package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func createNamespaces(ctx context.Context, c client.Client, names []string) error {
	for _, name := range names {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name,
			// kubectl apply warns of objects without it, and samples include the namespaces that they need.
			Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}"},
		}}
		if err := c.Create(ctx, namespace); err != nil {
			return fmt.Errorf("create namespace: %w", err)
		}
	}
	return nil
}

// CreateTenantNamespace creates a namespace of the tenant's. Without a node, namespaces cannot be deleted, so a test
// that needs a clean one creates a new one.
func (c *Cluster) CreateTenantNamespace(ctx context.Context, name string) error {
	if err := createNamespaces(ctx, c.masters, []string{name}); err != nil {
		return err
	}
	if err := c.masters.Create(ctx, tenantBinding(name)); err != nil {
		return fmt.Errorf("give namespace %s to the tenant: %w", name, err)
	}
	return waitForPermission(ctx, c.masters, tenantPermission(name))
}
