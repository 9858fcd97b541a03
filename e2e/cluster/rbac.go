package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	tenantRole    = "opgate-e2e-tenant"
	templateRole  = "opgate-e2e-templates"
	orderingRole  = "opgate-e2e-ordering"
	metricsRole   = "opgate-e2e-metrics"
	rightsRole    = "opgate-e2e-rights"
	admissionRole = "opgate-admission"
	contentsRole  = "opgate-contents"
	certsRole     = "opgate-certs"
	loopRole      = "opgate-loop"
	backstopRole  = "opgate-backstop"
	namespaceRole = "opgate" // a Role in the namespace that Opgate lives in

	operatorsGroup = "operators.coreos.com"
	packagesGroup  = "packages.operators.coreos.com"
	policyGroup    = "policy.open-cluster-management.io"

	// rbacTimeout bounds the time until the API server's authorizer has seen new bindings; it takes milliseconds.
	rbacTimeout = speed.Wait
	// pollInterval is the interval between checks of a condition that cannot be watched.
	pollInterval = 50 * time.Millisecond
)

// AdmissionRules are what Opgate may do on every replica, to judge what others write.
func AdmissionRules() ([]rbacv1.PolicyRule, error) { return shippedRules(admissionRole) }

// ContentsRules are what Opgate may do besides on every replica, to read what plans change.
func ContentsRules() ([]rbacv1.PolicyRule, error) { return shippedRules(contentsRole) }

// CertsRules are what Opgate may do besides, to maintain its certificates and webhook configurations, and for the
// leader election of this.
func CertsRules() ([]rbacv1.PolicyRule, error) { return shippedRules(certsRole, namespaceRole) }

// chartRights are the roles that the chart has by value, and by default.
var chartRights = []string{"opgate-catalogs", "opgate-deployments", "opgate-namespaces", "opgate-cluster-extensions"}

// RolesBeyondChart are bound to Opgate for tests, beyond the rights of the chart's defaults. The bindings have their
// names.
var RolesBeyondChart = []string{rightsRole, templateRole, orderingRole, metricsRole}

// RightsRules are what the chart grants by value, and these tests grant all: the rights that are on by default, those
// that are not, and catalogs in every namespace.
func RightsRules() ([]rbacv1.PolicyRule, error) {
	checkout, err := repo.Find()
	if err != nil {
		return nil, err
	}
	rules, err := shippedRules(chartRights...)
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(checkout.Manifests(), "components", "rights", "*", "rbac.yaml"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no component with rights is shipped: %w", err)
	}
	for _, path := range paths {
		objects, err := readRBAC(path)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			if role, ok := object.(*rbacv1.ClusterRole); ok {
				rules = append(rules, role.Rules...)
			}
		}
	}
	return rules, nil
}

// LoopRules are what Opgate may do besides where its background loop runs.
func LoopRules() ([]rbacv1.PolicyRule, error) { return shippedRules(loopRole) }

// BackstopRules are what Opgate may do besides where the API server is to hold what policies allow by itself.
func BackstopRules() ([]rbacv1.PolicyRule, error) { return shippedRules(backstopRole) }

// TemplateRules are what the templates of policies may look up here: they are rights of the account that Opgate
// impersonates for that. An administrator grants them, as these tests do.
func TemplateRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{allow("", []string{"configmaps"}, "get", "list", "watch")}
}

// OrderingRules are for kinds that templates of Policies are of here, or that dependencies name, besides those that
// Opgate is shipped for. An administrator grants them, as these tests do: a custom kind, and some of what the chart
// grants with ordering.gatekeeper.
func OrderingRules() []rbacv1.PolicyRule {
	all := []string{"list", "watch", "create", "update", "delete"}
	return []rbacv1.PolicyRule{
		allow("example.com", []string{"widgets"}, all...),
		allow("templates.gatekeeper.sh", []string{"constrainttemplates"}, all...),
		allow("constraints.gatekeeper.sh", []string{"k8srequiredlabels"}, all...),
	}
}

// MetricsRules are what Opgate may do besides where metrics are secure. The chart grants it with metrics.secure.
func MetricsRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{allow("authentication.k8s.io", []string{"tokenreviews"}, "create")}
}

// OpgateRules are all that Opgate may need here: for admission and certificates and, once there was a gate with Loop,
// for that as well. It may do no more than that, but needs less while the loop does not run.
func (c *Cluster) OpgateRules() ([]rbacv1.PolicyRule, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	roles := []string{admissionRole, contentsRole, certsRole, namespaceRole}
	if c.chartRights {
		return shippedRules(append(append(roles, chartRights...), loopRole, backstopRole)...)
	}
	var also []rbacv1.PolicyRule
	if c.loop {
		roles, also = append(roles, loopRole), append(also, OrderingRules()...)
	}
	if c.loop || c.backstop {
		roles = append(roles, backstopRole)
	}
	if c.secureMetrics {
		also = append(also, MetricsRules()...)
	}
	if c.reports {
		reports, err := reportsRules()
		if err != nil {
			return nil, err
		}
		also = append(also, reports...)
	}
	granted, err := RightsRules()
	if err != nil {
		return nil, err
	}
	rules, err := shippedRules(roles...)
	return slices.Concat(rules, granted, also), err
}

func allow(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// createChartRBAC creates the roles and bindings of all users. Those of Opgate are the ones that it is shipped with.
func createChartRBAC(ctx context.Context, c client.Client, tenantNamespaces []string) error {
	if err := createBareRBAC(ctx, c, tenantNamespaces); err != nil {
		return err
	}
	objects, err := shippedRBAC()
	if err != nil {
		return fmt.Errorf("set up permissions: %w", err)
	}
	return createAll(ctx, c, objects)
}

func createAll(ctx context.Context, c client.Client, objects []client.Object) error {
	for _, object := range objects {
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("set up permissions: %w", err)
		}
	}
	return nil
}

// createRBAC creates what createChartRBAC does, and binds to Opgate what tests need beyond the chart's defaults.
func createRBAC(ctx context.Context, c client.Client, tenantNamespaces []string) error {
	if err := createChartRBAC(ctx, c, tenantNamespaces); err != nil {
		return err
	}
	granted, err := RightsRules()
	if err != nil {
		return fmt.Errorf("set up permissions: %w", err)
	}
	var objects []client.Object
	for name, rules := range map[string][]rbacv1.PolicyRule{rightsRole: granted, templateRole: TemplateRules(),
		orderingRole: OrderingRules(), metricsRole: MetricsRules()} {
		account := opgateServiceAccount
		if name == templateRole {
			account = lookupServiceAccount
		}
		objects = append(objects, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules},
			clusterBinding(name, name, serviceAccountSubject(OpgateNamespace, account)))
	}
	return createAll(ctx, c, objects)
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

// waitForRBAC waits until the authorizer knows every role and binding of createRBAC. It learns of them by watching, so
// a user may be refused right after the objects were created.
func waitForRBAC(ctx context.Context, c client.Client, tenantNamespaces []string) error {
	if err := waitForBareRBAC(ctx, c, tenantNamespaces); err != nil {
		return err
	}
	permissions := []authorizationv1.SubjectAccessReviewSpec{
		{
			User: OpgateUserName,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: operatorsGroup, Resource: "subscriptions",
				Verb: "watch"},
		},
		{
			User: OpgateUserName,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: operatorsGroup, Resource: "subscriptions",
				Verb: "create"},
		},
		{
			User: OpgateUserName,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies", Name: "opgate-backstop",
				Verb: "watch",
			},
		},
		{
			User:               "system:serviceaccount:" + OpgateNamespace + ":" + lookupServiceAccount,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Resource: "configmaps", Verb: "watch"},
		},
		{
			User: OpgateUserName,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "example.com", Resource: "widgets",
				Verb: "watch"},
		},
		{
			User: string(Tenant), Groups: []string{"system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: operatorsGroup, Resource: "constraints",
				Verb: "list"},
		},
		{
			User: OpgateUserName,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Name: "opgate",
				Verb: "watch",
			},
		},
		{
			User: OpgateUserName,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: OpgateNamespace, Group: "coordination.k8s.io", Resource: "leases", Name: "opgate-loop",
				Verb: "update",
			},
		},
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
