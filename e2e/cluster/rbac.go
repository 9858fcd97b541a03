package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	tenantRole = "opgate-e2e-tenant"
	opgateRole = "opgate"

	// rbacTimeout bounds the time until the API server's authorizer has seen new bindings; it takes milliseconds.
	rbacTimeout = 30 * time.Second
	// pollInterval is how often a condition is looked at that cannot be watched.
	pollInterval = 50 * time.Millisecond
)

// createRBAC creates the roles and bindings of all users.
func createRBAC(ctx context.Context, c client.Client, tenantNamespaces []string) error {
	objects := []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: tenantRole},
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{"operators.coreos.com"},
				Resources: []string{"subscriptions", "installplans", "installplans/status"},
				Verbs:     []string{rbacv1.VerbAll},
			}, {
				APIGroups: []string{"operators.coreos.com"},
				Resources: []string{"clusterserviceversions"},
				Verbs:     []string{"get", "list", "watch"},
			}},
		},
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: opgateRole},
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{"policy.open-cluster-management.io"},
				Resources: []string{"operatorpolicies"},
				Verbs:     []string{"get", "list", "watch"},
			}, {
				APIGroups: []string{"operators.coreos.com"},
				Resources: []string{"subscriptions", "installplans", "clusterserviceversions"},
				Verbs:     []string{"get", "list", "watch"},
			}, {
				APIGroups: []string{authorizationv1.GroupName},
				Resources: []string{"subjectaccessreviews"},
				Verbs:     []string{"create"},
			}},
		},
		clusterBinding("opgate-e2e-admin", "cluster-admin", userSubject(Admin)),
		clusterBinding("opgate-e2e-olm", "cluster-admin", serviceAccountSubject(OLMNamespace, olmServiceAccount)),
		clusterBinding("opgate", opgateRole, serviceAccountSubject(OpgateNamespace, opgateServiceAccount)),
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

func tenantBinding(namespace string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: tenantRole},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: tenantRole},
		Subjects:   []rbacv1.Subject{userSubject(Tenant)},
	}
}

func clusterBinding(name, role string, subject rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}
}

func userSubject(user User) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: string(user)}
}

func serviceAccountSubject(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

// waitForRBAC waits until the authorizer knows every role and binding of createRBAC. It learns of them by watching, so a
// user may be refused right after the objects were created.
func waitForRBAC(ctx context.Context, c client.Client, tenantNamespaces []string) error {
	permissions := []authorizationv1.SubjectAccessReviewSpec{
		{
			User:               string(Admin),
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "*", Resource: "*", Verb: "*"},
		},
		{
			User:               "system:serviceaccount:" + OLMNamespace + ":" + olmServiceAccount,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "*", Resource: "*", Verb: "*"},
		},
		{
			User:               "system:serviceaccount:" + OpgateNamespace + ":" + opgateServiceAccount,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "operators.coreos.com", Resource: "subscriptions", Verb: "watch"},
		},
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

func tenantPermission(namespace string) authorizationv1.SubjectAccessReviewSpec {
	return authorizationv1.SubjectAccessReviewSpec{
		User: string(Tenant),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Group: "operators.coreos.com", Resource: "subscriptions", Verb: "create",
		},
	}
}

func waitForPermission(ctx context.Context, c client.Client, permission authorizationv1.SubjectAccessReviewSpec) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, rbacTimeout, true, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: permission}
		last = c.Create(ctx, review)
		return last == nil && review.Status.Allowed, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the permissions of %s: %w", permission.User, errors.Join(err, last))
	}
	return nil
}
