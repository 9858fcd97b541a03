package dependency

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// greedy is a Policy of the tenant's that waits for many objects, half of them by its one template.
func greedy(namespace, name, template string, on func(i int) policyv1.PolicyDependency, count int) *policyv1.Policy {
	p := &policyv1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	one := &policyv1.PolicyTemplate{}
	one.ObjectDefinition.Raw = []byte(template)
	p.Spec.PolicyTemplates = []*policyv1.PolicyTemplate{one}
	for i := range count {
		d := on(i)
		d.Compliance = policyv1.Compliant
		if i%2 == 0 {
			p.Spec.Dependencies = append(p.Spec.Dependencies, d)
		} else {
			one.ExtraDependencies = append(one.ExtraDependencies, d)
		}
	}
	return p
}

// tenantIn makes a namespace that the tenant may write Policies in, and returns a client of the tenant's.
func (e *env) tenantIn(t *testing.T, namespace string) crclient.Client {
	t.Helper()
	if err := e.CreateTenantNamespace(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	config, err := e.RESTConfig(cluster.Tenant)
	if err != nil {
		t.Fatal(err)
	}
	tenant, err := crclient.New(config, crclient.Options{Scheme: e.Admin.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return tenant
}

// outage stops Opgate and takes the webhooks away, so that nothing is judged.
func (e *env) outage(t *testing.T) {
	t.Helper()
	if _, err := e.Gate.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"mutatingwebhookconfiguration", "validatingwebhookconfiguration"} {
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "delete", kind, "opgate")
	}
}

// recover starts Opgate, and puts the webhooks back.
func (e *env) recover(t *testing.T) {
	t.Helper()
	var err error
	if e.Gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{Loop: true}); err != nil {
		t.Fatal(err)
	}
}

// curious is a Policy that asks what there is in namespace victim.
func curious(name string) *policyv1.Policy {
	p := greedy("hostile", name, `{"apiVersion":"v1","kind":"X"}`, func(i int) policyv1.PolicyDependency {
		return policyv1.PolicyDependency{
			APIVersion: "operators.coreos.com/v1alpha1",
			Kind:       "Subscription",
			Namespace:  "victim",
			Name:       []string{"secret-project", "nothing"}[i],
		}
	}, 2)
	p.SetGroupVersionKind(policyKind)
	return p
}

// TestA8AndB2PolicyAuthors has a tenant write Policies that look into another namespace, and make a Constraint for the
// cluster: past the gate while it answers, and while it does not.
func TestA8AndB2PolicyAuthors(t *testing.T) {
	t.Parallel()
	e := start(t)
	tenant := e.tenantIn(t, "hostile")
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "namespace", "victim")
	e.CreateAs(t, cluster.Admin, harness.Subscription("victim", "secret-project", harness.GoodCatalog, "Manual"))
	rule := &policyv1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: "rule"}}
	rule.SetGroupVersionKind(policyKind)
	template := &policyv1.PolicyTemplate{}
	template.ObjectDefinition.Raw = []byte(
		`{"apiVersion":"operators.coreos.com/v1","kind":"Constraint","metadata":{"name":"nothing-for-others"},"spec":{"constraints":"[]"}}`)
	rule.Spec.PolicyTemplates = []*policyv1.PolicyTemplate{template}
	refuses := func(t *testing.T, err error, rule string) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "("+rule+")") {
			t.Errorf("got %v, want it refused by %s", err, rule)
		}
	}

	t.Run("A8 it asks what there is", func(t *testing.T) {
		refuses(t, tenant.Create(t.Context(), curious("curious")), "policy/dependency-access")
	})
	t.Run("O14 it borrows rights", func(t *testing.T) {
		refuses(t, tenant.Create(t.Context(), rule.DeepCopy()), "policy/escalation")
	})
	good := policyOf("hostile", "good")
	e.mustCreate(t, good)
	e.turns(t, "hostile", "good", "Compliant")
	e.waitIs(t, "hostile", "good", policyv1.Compliant)

	e.outage(t)
	forged := rule.DeepCopy()
	forged.Name = "forged"
	template = template.DeepCopy()
	template.ObjectDefinition.Raw = []byte(strings.Replace(string(template.ObjectDefinition.Raw), "nothing-for-others",
		"forged", 1))
	forged.Spec.PolicyTemplates = []*policyv1.PolicyTemplate{template}
	// the mark of another one
	forged.Annotations = map[string]string{"opgate.io/verified": good.Annotations["opgate.io/verified"]}
	for _, p := range []*policyv1.Policy{curious("curious"), rule.DeepCopy(), forged} {
		harness.Eventually(t, "it is written while nothing is judged", func(ctx context.Context) error {
			if err := tenant.Create(ctx, p.DeepCopy()); !apierrors.IsAlreadyExists(err) {
				return err
			}
			return nil
		})
	}
	e.recover(t)
	constraint := func(ctx context.Context, name string) error {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kinds["constraint"])
		return e.Admin.Get(ctx, crclient.ObjectKey{Name: name}, u)
	}
	for _, name := range []string{"curious", "rule", "forged"} {
		p := e.waitIs(t, "hostile", name, policyv1.NonCompliant)
		text := strings.Join(strings.Fields(rendered(p)), " ") // which breaks lines
		for _, tells := range []string{"NotFound", "NoStatus", "WrongState"} {
			if strings.Contains(text, tells) {
				t.Errorf("A8: %s tells %s:\n%s", name, tells, text)
			}
		}
		if name != "curious" && !strings.Contains(text, "were not verified when it was written (policy/escalation)") {
			t.Errorf("B2: %s does not say why nothing is made of it:\n%s", name, text)
		}
	}
	e.waitQuiet(t)
	for _, name := range []string{"nothing-for-others", "forged"} {
		if err := constraint(t.Context(), name); !apierrors.IsNotFound(err) {
			t.Errorf("B2: Constraint %s was made of a Policy whose author has no right to: %v", name, err)
		}
	}
	e.waitIs(t, "hostile", "good", policyv1.Compliant)

	t.Run("B2 its author cannot have it verified", func(t *testing.T) {
		harness.WantRefused(t, e.Cluster, cluster.Tenant, "",
			[]string{"annotate", "policies.policy.open-cluster-management.io", "rule", "-n", "hostile", "--overwrite",
				"opgate.io/verified=again"}, "(policy/escalation)")
	})
	t.Run("B2 what touches it does not verify it", func(t *testing.T) {
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "annotate", "policies.policy.open-cluster-management.io",
			"rule", "-n", "hostile", "touched=yes")
		e.waitQuiet(t)
		if err := constraint(t.Context(), "nothing-for-others"); !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("B2 a user with the right verifies it", func(t *testing.T) {
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "annotate", "policies.policy.open-cluster-management.io",
			"rule", "-n", "hostile", "--overwrite", "opgate.io/verified=again")
		harness.Eventually(t, "the Constraint is made",
			func(ctx context.Context) error { return constraint(ctx, "nothing-for-others") })
	})
}
