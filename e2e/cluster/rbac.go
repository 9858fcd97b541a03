package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	tenantRole    = "opgate-e2e-tenant"
	admissionRole = "opgate-admission"
	templateRole  = "opgate-e2e-templates"
	loopRole      = "opgate-loop"

	policyGroup    = "policy.open-cluster-management.io"
	operatorsGroup = "operators.coreos.com"
	packagesGroup  = "packages.operators.coreos.com"

	// rbacTimeout bounds the time until the API server's authorizer has seen new bindings; it takes milliseconds.
	rbacTimeout = 30 * time.Second
	// pollInterval is how often a condition is looked at that cannot be watched.
	pollInterval = 50 * time.Millisecond
)

// AdmissionRules are what Opgate may do on every replica, to judge what others write.
func AdmissionRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		allow(policyGroup, []string{"operatorpolicies"}, "get", "list", "watch"),
		allow(operatorsGroup, []string{"subscriptions", "installplans", "clusterserviceversions"}, "get", "list", "watch"),
		allow(packagesGroup, []string{"packagemanifests"}, "get", "list"),
		allow(authorizationv1.GroupName, []string{"subjectaccessreviews"}, "create"),
	}
}

// TemplateRules are what the templates of policies may look up here, on every replica. By itself Opgate has no such right: an
// administrator grants it, as these tests do.
func TemplateRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{allow("", []string{"configmaps"}, "get", "list", "watch")}
}

// LoopRules are what Opgate may do besides where its background loop runs. LoopNamespaceRules are more.
func LoopRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		allow(policyGroup, []string{"operatorpolicies/status"}, "patch"),
		allow(operatorsGroup, []string{"subscriptions"}, "create", "patch", "delete"),
		allow(operatorsGroup, []string{"subscriptions/status"}, "patch"),
		allow(operatorsGroup, []string{"installplans"}, "patch", "delete"),
		allow(operatorsGroup, []string{"operatorgroups"}, "list", "watch", "create", "patch", "delete"),
		allow(operatorsGroup, []string{"clusterserviceversions"}, "delete"),
		allow(operatorsGroup, []string{"catalogsources"}, "list", "watch"),
		allow("apiextensions.k8s.io", []string{"customresourcedefinitions"}, "list", "watch", "delete"),
		allow("apps", []string{"deployments"}, "list", "watch"),
		allow("", []string{"namespaces"}, "list", "watch", "create"),
		allow("", []string{"events"}, "create"),
	}
}

// LoopNamespaceRules are what the loop may do in the namespace that Opgate lives in: agree on one replica that runs it.
func LoopNamespaceRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{allow("coordination.k8s.io", []string{"leases"}, "get", "create", "update")}
}

// OpgateRules are all that Opgate may need here: for admission and, once there was a gate with Loop, for that as well. It may do
// no more than that, but needs less while the loop does not run.
func (c *Cluster) OpgateRules() []rbacv1.PolicyRule {
	c.mu.Lock()
	defer c.mu.Unlock()
	rules := slices.Concat(AdmissionRules(), TemplateRules())
	if c.loop {
		rules = slices.Concat(rules, LoopRules(), LoopNamespaceRules())
	}
	return rules
}

func allow(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// createRBAC creates the roles and bindings of all users.
func createRBAC(ctx context.Context, c client.Client, tenantNamespaces []string) error {
	opgate := serviceAccountSubject(OpgateNamespace, opgateServiceAccount)
	objects := []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: tenantRole},
			Rules: []rbacv1.PolicyRule{
				allow(operatorsGroup, []string{"subscriptions", "installplans", "installplans/status"}, rbacv1.VerbAll),
				allow(operatorsGroup, []string{"clusterserviceversions"}, "get", "list", "watch"),
				allow(packagesGroup, []string{"packagemanifests"}, "get", "list", "watch"),
			},
		},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: admissionRole}, Rules: AdmissionRules()},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: templateRole}, Rules: TemplateRules()},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: loopRole}, Rules: LoopRules()},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: OpgateNamespace, Name: loopRole}, Rules: LoopNamespaceRules()},
		clusterBinding("opgate-e2e-admin", "cluster-admin", userSubject(Admin)),
		clusterBinding("opgate-e2e-olm", "cluster-admin", serviceAccountSubject(OLMNamespace, olmServiceAccount)),
		clusterBinding(admissionRole, admissionRole, opgate),
		clusterBinding(templateRole, templateRole, opgate),
		clusterBinding(loopRole, loopRole, opgate),
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: OpgateNamespace, Name: loopRole},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: loopRole},
			Subjects:   []rbacv1.Subject{opgate},
		},
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
			User:               OpgateUserName,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: operatorsGroup, Resource: "subscriptions", Verb: "watch"},
		},
		{
			User:               OpgateUserName,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: operatorsGroup, Resource: "subscriptions", Verb: "create"},
		},
		{
			User: OpgateUserName,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: OpgateNamespace, Group: "coordination.k8s.io", Resource: "leases", Verb: "update",
			},
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
			Namespace: namespace, Group: operatorsGroup, Resource: "subscriptions", Verb: "create",
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
