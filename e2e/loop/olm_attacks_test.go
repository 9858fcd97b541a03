package loop

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
)

// changing is a package whose second version has one more way to get rights.
func changing(name string, change func(p *olm.Package)) olm.Package {
	return olm.Package{
		Name: name, CSV: name + "operator", Versions: []string{"0.9.2", "0.9.4"}, Account: name + "-operator",
		Permissions: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"},
			Verbs: []string{"get"}}},
		Release: func(version string, p *olm.Package) {
			if version == "0.9.4" {
				change(p)
			}
		},
	}
}

func metadata(kind, name string) (metav1.TypeMeta, metav1.ObjectMeta) {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}, metav1.ObjectMeta{Name: name}
}

// roles are a role, or a ClusterRole, that may get Secrets, and its binding to a ServiceAccount.
func roles(cluster, name, namespace, account string) map[string]any {
	role, binding := rbacv1.Role{Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"},
		Verbs: []string{"get"}}}}, rbacv1.RoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: cluster + "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}
	role.TypeMeta, role.ObjectMeta = metadata(cluster+"Role", name)
	binding.TypeMeta, binding.ObjectMeta = metadata(cluster+"RoleBinding", name)
	return map[string]any{"role.json": role, "binding.json": binding}
}

// The packages by which a publisher of bundles, or a namespace admin who prepares their objects, tries to get by a
// review of changes.
func changingPackages() []olm.Package {
	return []olm.Package{
		changing("lodger", func(p *olm.Package) { p.Objects = roles("Cluster", "lodger-own", "attacker", "default") }),
		changing("preparer", func(p *olm.Package) { p.Objects = roles("", "preparer-extra", "", "preparer-operator") }),
		changing("borrower", func(p *olm.Package) { p.Account = "vault-operator" }),
		changing("collector", func(p *olm.Package) {
			p.Objects = map[string]any{"secret.json": corev1.Secret{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
				ObjectMeta: metav1.ObjectMeta{Name: "token",
					Annotations: map[string]string{corev1.ServiceAccountNameKey: "vault-operator"}},
				Type: corev1.SecretTypeServiceAccountToken,
			}}
		}),
	}
}

// wantReviewed wants the second version of a package to be held for what it changes (threats O48, O49, O50). The tenant
// may approve plans.
func wantReviewed(t *testing.T, e *harness.OLMEnv, namespace, pkg string, change string) {
	t.Helper()
	p := consentPolicy(namespace, pkg, pkg+"operator")
	e.Apply(t, p)
	e.WaitForCSV(t, namespace, pkg+"operator.v0.9.2")
	plan := e.WaitForPlan(t, namespace, pkg+"operator.v0.9.4")
	waitForPolicy(t, e, p, is(compliant), wantCondition("InstallPlanCompliant=True InstallPlanRequiresApproval",
		"(bundle/consent)", change))
	e.WantApprovalRefused(t, cluster.Tenant, plan, "(bundle/consent)", change)
}

// attackC1 binds the rights that the operator has to an account of another namespace.
func attackC1(t *testing.T, e *harness.OLMEnv) {
	wantReviewed(t, e, e.NewNamespace(t), "lodger", "cluster-wide, for ServiceAccount attacker/default: get on secrets")
}

// attackC2 prepares the role that the next version brings, as an admin of the namespace, so that it counts as
// installed.
func attackC2(t *testing.T, e *harness.OLMEnv) {
	namespace := e.NewNamespace(t)
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "role", "-n", namespace, "admin", "--verb=get,create",
		"--resource=roles,rolebindings,secrets")
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "rolebinding", "-n", namespace, "admin", "--role=admin",
		"--user="+string(cluster.Tenant))
	e.Eventually(t, "prepare the role", func(ctx context.Context) error {
		got, err := e.Kubectl(ctx, cluster.Tenant, "", "create", "role", "-n", namespace, "preparer-extra",
			"--verb=get", "--resource=secrets")
		if err != nil || got.ExitCode != 0 {
			return fmt.Errorf("%s (%w)", got.Stderr, err)
		}
		return nil
	})
	harness.Kubectl(t, e.Cluster, cluster.Tenant, "", "create", "rolebinding", "-n", namespace, "preparer-extra",
		"--role=preparer-extra", "--serviceaccount="+namespace+":nobody")
	wantReviewed(t, e, namespace, "preparer", "preparer-extra")
}

// attackC3 runs the pods as an account whose rights are not compared.
func attackC3(t *testing.T, e *harness.OLMEnv) {
	wantReviewed(t, e, e.NewNamespace(t), "borrower", "runs as ServiceAccount vault-operator, before borrower-operator")
}

// attackC4 brings a Secret that Kubernetes fills with the token of another account.
func attackC4(t *testing.T, e *harness.OLMEnv) {
	wantReviewed(t, e, e.NewNamespace(t), "collector", "token of ServiceAccount vault-operator in Secret token")
}
