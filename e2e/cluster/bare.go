package cluster

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// createBareRBAC creates the roles and bindings of all users but Opgate.
func createBareRBAC(ctx context.Context, c client.Client, tenantNamespaces []string) error {
	objects := []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: tenantRole},
			Rules: []rbacv1.PolicyRule{
				allow(operatorsGroup, []string{"subscriptions", "installplans", "installplans/status"}, rbacv1.VerbAll),
				allow(operatorsGroup, []string{"operatorgroups"}, "get", "patch"),
				allow(operatorsGroup, []string{"clusterserviceversions"}, "get", "list", "watch"),
				allow(packagesGroup, []string{"packagemanifests"}, "get", "list", "watch"),
				// What the templates of an OperatorPolicy look up needs rights of its own: see rule
				// operatorpolicy/lookup.
				allow(policyGroup, []string{"operatorpolicies"}, "get", "update"),
				// The templates of a Policy need rights of their own: see rule policy/escalation.
				allow(policyGroup, []string{"policies", "policysets"}, "get", "list", "create", "update", "patch",
					"delete"),
			},
		},
		clusterBinding("opgate-e2e-admin", "cluster-admin", userSubject(Admin)),
		clusterBinding("opgate-e2e-olm", "cluster-admin", serviceAccountSubject(OLMNamespace, olmServiceAccount)),
	}
	for _, namespace := range tenantNamespaces {
		objects = append(objects, tenantBinding(namespace))
	}
	for _, object := range objects {
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("set up permissions: %w", err)
		}
	}
	return nil
}

// waitForBareRBAC waits until the authorizer knows every role and binding of createBareRBAC.
func waitForBareRBAC(ctx context.Context, c client.Client, tenantNamespaces []string) error {
	var permissions []authorizationv1.SubjectAccessReviewSpec
	for _, user := range []string{string(Admin), OLMUserName} {
		permissions = append(permissions, authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "*", Resource: "*", Verb: "*"},
		})
	}
	for _, namespace := range tenantNamespaces {
		permissions = append(permissions, tenantPermission(namespace))
	}
	for _, permission := range permissions {
		if err := waitForPermission(ctx, c, permission); err != nil {
			return err
		}
	}
	return nil
}
