package rules

import (
	"strings"
	"testing"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// withheld returns the grants of an installation without some rights, and with catalogs in namespace olm.
func withheld(t *testing.T, rights ...Grant) Grants {
	t.Helper()
	granted := strings.Join(AllGrants(), " ")
	for _, right := range rights {
		granted = strings.ReplaceAll(" "+granted+" ", " "+string(right)+" ", " ")
	}
	g, err := NewGrants(strings.Fields(granted), []string{"olm"})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestG25PoliciesAreWarned: a policy that needs a right that is withheld is warned with the value that grants it, and
// with the right it is not.
func TestG25PoliciesAreWarned(t *testing.T) {
	type spec = policyv1beta2.OperatorPolicySpec
	policy := func(edit func(*spec)) func(Grants) verdict.Verdict {
		return func(g Grants) verdict.Verdict {
			return JudgeOperatorPolicy(OperatorPolicyInput{Policy: operatorPolicy("etcd", edit), Namespace: func(string) *Namespace { return nil }, Grants: g})
		}
	}
	for _, c := range []struct {
		name  string
		judge func(Grants) verdict.Verdict
		lacks Grant
		value string
	}{
		{
			name:  "deletes definitions",
			judge: policy(func(s *spec) { s.RemovalBehavior.CustomResourceDefinitions = policyv1beta2.RemovalDelete }),
			lacks: GrantDefinitions,
			value: "rights.definitions",
		},
		{
			name: "reports Deployments",
			judge: policy(func(s *spec) {
				s.ComplianceConfig.DeploymentsUnavailable = policyv1beta2.ConfigNonCompliant
			}),
			lacks: GrantDeployments,
			value: "rights.deployments",
		},
		{
			name:  "installs where there is no namespace",
			judge: policy(func(s *spec) { s.ComplianceType, s.RemediationAction = policyv1beta2.MustHave, policyv1beta2.Enforce }),
			lacks: GrantNamespaces,
			value: "rights.namespaces",
		},
		{
			name:  "asks for consent",
			judge: policy(reviewing(policyv1beta2.Consent{Images: policyv1beta2.ConsentHold})),
			lacks: GrantContents,
			value: "policy.consent.enabled",
		},
		{
			name: "shows properties to OLM",
			judge: func(g Grants) verdict.Verdict {
				c := &constraintv1.Constraint{}
				c.Name, c.Annotations = "secured", map[string]string{VirtualOperatorNamespacesAnnotation: ""}
				c.Spec.Properties = `[{"type":"secured","value":true}]`
				return JudgeConstraint(ConstraintInput{Constraint: c, Grants: g})
			},
			lacks: GrantVirtualOperators,
			value: "rights.virtualOperators",
		},
		{
			name: "judges by contents",
			judge: func(g Grants) verdict.Verdict {
				c := &constraintv1.Constraint{}
				c.Name = "rights"
				c.Spec.Constraints = `[{"type":"olm.constraint","value":{"cel":{"rule":"clusterPermissions.size() == 0"}}}]`
				return JudgeConstraint(ConstraintInput{Constraint: c, Grants: g})
			},
			lacks: GrantContents,
			value: "policy.consent.enabled",
		},
		{
			name:  "has a template of ConfigurationPolicy",
			judge: func(g Grants) verdict.Verdict { return JudgePolicy(PolicyInput{Policy: policyOf(t, "app"), Grants: g}) },
			lacks: GrantConfigurationPolicies,
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
	facts := state.Cluster{CatalogNamespaces: []string{"olm"}}
	for _, namespace := range []string{"olm", "team"} {
		facts.AddCatalog(olm.Catalog{Namespace: namespace, Name: "c"}, &olm.CatalogSource{Spec: olm.CatalogSourceSpec{Image: "registry.example.com/c@" + digest}})
	}
	if got, unknown := RunningDigest(&facts, olm.Catalog{Namespace: "olm", Name: "c"}); got != digest {
		t.Errorf("in a namespace that is read: %q, %s", got, unknown)
	}
	if got, unknown := RunningDigest(&facts, olm.Catalog{Namespace: "team", Name: "c"}); got != "" || !strings.Contains(unknown, CatalogNamespacesValue) {
		t.Errorf("elsewhere: %q, %s", got, unknown)
	}
	op := operatorPolicy("etcd", func(s *policyv1beta2.OperatorPolicySpec) {
		s.Subscription.Source, s.Subscription.SourceNamespace = "c", "team"
		catalogHeld(policyv1beta2.Catalog{Image: policyv1beta2.CatalogHold})(s)
	})
	v := JudgeOperatorPolicy(OperatorPolicyInput{Policy: op, Namespace: func(string) *Namespace { return nil }, Grants: withheld(t)})
	if text := strings.Join(v.WarningTexts(), "\n"); !strings.Contains(text, "namespace team: add it to chart value "+CatalogNamespacesValue) {
		t.Errorf("warnings:\n%s", text)
	}
}
