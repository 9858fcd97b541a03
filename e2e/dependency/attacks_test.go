package dependency

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// readsAnywhere lets the tenant get what its Policies wait for, and make what their templates say: all that A8 and O14
// want.
const readsAnywhere = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-hostile}
rules:
  - {apiGroups: [operators.coreos.com, ordering.example.com, policy.open-cluster-management.io], resources: ["*"], verbs: [get]}
  - {apiGroups: [policy.open-cluster-management.io], resources: [configurationpolicies], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-hostile}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-hostile}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}]
`

// usage is what the process of Opgate takes.
type usage struct{ resident, goroutines, watches float64 }

func (e *env) usage(t *testing.T) (u usage) {
	t.Helper()
	code, body, err := harness.GetURL(t.Context(), e.Gate.MetricsURL())
	if err != nil || code != http.StatusOK {
		t.Fatalf("metrics: %d %v", code, err)
	}
	for name, into := range map[string]*float64{"process_resident_memory_bytes": &u.resident,
		"go_goroutines": &u.goroutines, "opgate_ordering_watches": &u.watches} {
		_, rest, _ := strings.Cut(body, "\n"+name+" ")
		if _, err := fmt.Sscan(rest, into); err != nil {
			t.Fatalf("metric %s: %v", name, err)
		}
	}
	return u
}

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

// TestA2WatchBudget has a tenant store five Policies that wait for thousands of objects (threat O23): of templates that
// nothing can be made of, of one kind in one namespace, and of a kind in hundreds of namespaces. They cost little
// memory, the Policies of others go on, and Opgate starts with them as it does without. It runs with make test-long:
// TestA2Budget has the limits.
func TestA2WatchBudget(t *testing.T) {
	t.Parallel()
	const (
		policies = 5
		mebibyte = 1 << 20
		// mostMemory is for three times five Policies. Each five take 9 MiB, and what the process has resident varies
		// by some more.
		mostMemory = 3 * 15 * mebibyte
		// mostWatches is what Opgate opens for one namespace, and one for each of two others.
		mostWatches    = 40 + 2
		mostGoroutines = 20 * mostWatches
	)
	const namespace = "greedy"
	e := start(t)
	tenant := e.tenantIn(t, namespace)
	harness.Kubectl(t, e.Cluster, cluster.Admin, readsAnywhere, "create", "-f", "-")
	other := e.place(t)
	e.mustCreate(t, configuration(other, "base"), policyOf(other, "before", "ConfigurationPolicy/base"))
	e.turns(t, other, "base", "Compliant")
	e.turns(t, other, "before", "Compliant")
	e.waitIs(t, other, "before", policyv1.Compliant)
	e.waitQuiet(t)
	before := e.usage(t)
	t.Logf("before: %+v", before)

	csv := func(policy int) func(int) policyv1.PolicyDependency {
		return func(i int) policyv1.PolicyDependency {
			return policyv1.PolicyDependency{
				APIVersion: "operators.coreos.com/v1alpha1",
				Kind:       "ClusterServiceVersion",
				Namespace:  "victim",
				Name:       fmt.Sprintf("x%d-%d", policy, i),
			}
		}
	}
	elsewhere := func(policy int) func(int) policyv1.PolicyDependency {
		return func(i int) policyv1.PolicyDependency {
			return policyv1.PolicyDependency{
				APIVersion: "ordering.example.com/v2",
				Kind:       "Widget",
				Namespace:  fmt.Sprintf("victim-%d-%d", policy, i),
				Name:       "x",
			}
		}
	}
	const made = `{"apiVersion":"policy.open-cluster-management.io/v1","kind":"ConfigurationPolicy","metadata":{"name":"made-%s"},"spec":{}}`
	for _, attack := range []struct {
		name, template string
		on             func(policy int) func(int) policyv1.PolicyDependency
		count          int
		watches        func(open float64) bool
		says           string
	}{
		{
			name:     "nothing",
			template: `{"apiVersion":"v1","kind":"X"}`,
			on:       csv,
			count:    960,
			watches:  func(open float64) bool { return open == before.watches },
			says:     "has no metadata.name",
		},
		{
			name:     "many",
			template: made,
			on:       csv,
			count:    960,
			watches:  func(open float64) bool { return open <= before.watches+1 },
			says:     "Dependencies were not satisfied",
		},
		{
			name:     "wide",
			template: made,
			on:       elsewhere,
			count:    400,
			watches:  func(open float64) bool { return open <= before.watches+40 },
			says:     "too many objects are waited for",
		},
	} {
		t.Run(attack.name, func(t *testing.T) {
			for i := range policies {
				name := fmt.Sprintf("%s-%d", attack.name, i)
				template := attack.template
				if template == made {
					template = fmt.Sprintf(made, name)
				}
				p := greedy(namespace, name, template, attack.on(i), attack.count)
				p.SetGroupVersionKind(policyKind)
				harness.Eventually(t, "store "+name, func(ctx context.Context) error {
					err := tenant.Create(ctx, p.DeepCopy())
					if apierrors.IsAlreadyExists(err) {
						return nil
					}
					return err
				})
			}
			for i := range policies {
				name := fmt.Sprintf("%s-%d", attack.name, i)
				harness.Eventually(t, name+" is looked at", func(ctx context.Context) error {
					p, err := e.policy(ctx, namespace, name)
					if err == nil && (len(p.Status.Details) == 0 || len(p.Status.Details[0].History) == 0) {
						err = fmt.Errorf("its status is %+v", p.Status)
					}
					return err
				})
			}
			if p, err := e.policy(t.Context(), namespace, attack.name+"-4"); err != nil ||
				!strings.Contains(rendered(p), attack.says) {
				t.Errorf("the last says (%v)\n%s", err, rendered(p))
			}
			e.waitQuiet(t)
			if now := e.usage(t); !attack.watches(now.watches) || now.goroutines > before.goroutines+mostGoroutines {
				t.Errorf("it takes %+v, and took %+v", now, before)
			}
		})
	}
	// What the garbage collector and the kernel take back, they do within minutes.
	peak, now := 0.0, before
	waiting, cancel := speed.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for ; waiting.Err() == nil; <-time.After(5 * time.Second) {
		now = e.usage(t)
		peak = max(peak, now.resident)
		if now.resident-before.resident <= mostMemory {
			break
		}
	}
	t.Logf("%d hostile Policies: %+v, %.1f MiB more than before, at most %.1f MiB", 3*policies, now,
		(now.resident-before.resident)/mebibyte, (peak-before.resident)/mebibyte)
	if now.resident-before.resident > mostMemory {
		t.Errorf("resident are %.1f MiB more than before", (now.resident-before.resident)/mebibyte)
	}

	started := time.Now()
	e.restartOpgate(t)
	e.mustCreate(t, policyOf(other, "after", "ConfigurationPolicy/base"))
	e.turns(t, other, "after", "Compliant")
	e.waitIs(t, other, "after", policyv1.Compliant)
	t.Logf("after %s of a restart another Policy is Compliant, and opgate takes %+v",
		time.Since(started).Round(time.Millisecond), e.usage(t))
	e.waitIs(t, other, "before", policyv1.Compliant)
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
