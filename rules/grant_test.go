package rules

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// withheld returns the grants of an installation without some rights, and with catalogs in namespace olm.
func withheld(t *testing.T, rights ...grant.Right) grant.Set {
	t.Helper()
	granted := strings.Join(grant.All(), " ")
	for _, right := range rights {
		granted = strings.ReplaceAll(" "+granted+" ", " "+string(right)+" ", " ")
	}
	g, err := grant.NewSet(strings.Fields(granted), []string{"olm"})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestG25PoliciesAreWarned: a policy that needs a right that is withheld is warned with the value that grants it, and
// with the right it is not.
func TestG25PoliciesAreWarned(t *testing.T) {
	type spec = policyv1beta2.OperatorPolicySpec
	policy := func(edit func(*spec)) func(grant.Set) verdict.Verdict {
		return func(g grant.Set) verdict.Verdict {
			return JudgeOperatorPolicy(OperatorPolicyInput{Policy: policyFor("etcd", edit),
				Namespace: func(string) *state.Namespace { return nil }, Grants: g})
		}
	}
	for _, c := range []struct {
		name  string
		judge func(grant.Set) verdict.Verdict
		lacks grant.Right
		value string
	}{
		{
			name:  "deletes definitions",
			judge: policy(func(s *spec) { s.RemovalBehavior.CustomResourceDefinitions = policyv1beta2.RemovalDelete }),
			lacks: grant.Definitions,
			value: "rights.definitions",
		},
		{
			name:  "asks for consent",
			judge: policy(reviewing(policyv1beta2.Consent{Images: policyv1beta2.ConsentHold})),
			lacks: grant.Contents,
			value: "policy.consent.enabled",
		},
		{
			name: "shows properties to OLM",
			judge: func(g grant.Set) verdict.Verdict {
				c := &constraintv1.Constraint{}
				c.Name, c.Annotations = "secured", map[string]string{metakey.VirtualOperatorNamespaces: ""}
				c.Spec.Properties = `[{"type":"secured","value":true}]`
				return JudgeConstraint(ConstraintInput{Constraint: c, Grants: g})
			},
			lacks: grant.VirtualOperators,
			value: "rights.virtualOperators",
		},
		{
			name: "judges by contents",
			judge: func(g grant.Set) verdict.Verdict {
				c := &constraintv1.Constraint{}
				c.Name = "rights"
				c.Spec.Constraints = `[{"type":"olm.constraint","value":{"cel":{"rule":"clusterPermissions.size() == 0"}}}]`
				return JudgeConstraint(ConstraintInput{Constraint: c, Grants: g})
			},
			lacks: grant.Contents,
			value: "policy.consent.enabled",
		},
		{
			name: "has a template of ConfigurationPolicy",
			judge: func(g grant.Set) verdict.Verdict {
				p := &policyv1.Policy{}
				if err := yaml.UnmarshalStrict(
					[]byte("metadata: {namespace: shop, name: app}\nspec:\n  policy-templates:\n"+
						"  - objectDefinition: {apiVersion: policy.open-cluster-management.io/v1, kind: ConfigurationPolicy, "+
						"metadata: {name: app-t}}\n"), p); err != nil {
					t.Fatal(err)
				}
				return dependency.JudgePolicy(dependency.PolicyInput{Policy: p, Grants: g})
			},
			lacks: grant.ConfigurationPolicies,
			value: "rights.configurationPolicies",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := c.judge(withheld(t, c.lacks))
			if text := strings.Join(v.WarningTexts(), "\n"); v.Decision != verdict.Allow || !strings.Contains(text,
				"chart value "+c.value+" grants it") {
				t.Errorf("decision %s, warnings:\n%s", v.Decision, text)
			}
			v = c.judge(withheld(t))
			if text := strings.Join(v.WarningTexts(), "\n"); strings.Contains(text, c.value) {
				t.Errorf("warned although the right is granted:\n%s", text)
			}
		})
	}
}

// TestG25CatalogElsewhere: where pods of a catalog may not be read, no field of its CatalogSource counts in their
// place, and a policy that names it is warned.
func TestG25CatalogElsewhere(t *testing.T) {
	const digest = "sha256:0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d"
	around := facts.Cluster{CatalogNamespaces: []string{"olm"}}
	for _, namespace := range []string{"olm", "team"} {
		around.AddCatalog(olm.Catalog{Namespace: namespace, Name: "c"},
			&olm.CatalogSource{Spec: olm.CatalogSourceSpec{Image: "registry.example.com/c@" + digest}})
	}
	around.WithoutServices = true
	if got, unknown := around.RunningDigest(olm.Catalog{Namespace: "olm", Name: "c"}); got != digest {
		t.Errorf("in a namespace that is read: %q, %s", got, unknown)
	}
	if got, unknown := around.RunningDigest(olm.Catalog{Namespace: "team", Name: "c"}); got != "" ||
		!strings.Contains(unknown, grant.CatalogNamespacesValue) {
		t.Errorf("elsewhere: %q, %s", got, unknown)
	}
	op := operatorPolicy("etcd", func(s *policyv1beta2.OperatorPolicySpec) {
		s.Subscription.Source, s.Subscription.SourceNamespace = "c", "team"
		catalogHeld(policyv1beta2.Catalog{Image: policyv1beta2.CatalogHold})(s)
	})
	v := JudgeOperatorPolicy(OperatorPolicyInput{Policy: NewOperatorPolicy(op),
		Namespace: func(string) *state.Namespace { return nil }, Grants: withheld(t)})
	if text := strings.Join(v.WarningTexts(), "\n"); !strings.Contains(text,
		"namespace team: add it to chart value "+grant.CatalogNamespacesValue) {
		t.Errorf("warnings:\n%s", text)
	}
}
