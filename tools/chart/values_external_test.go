package chart_test

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/opgate/opgate/tools/chart"
)

// externalCases are those in which another party owns what is Opgate's by default: the definition of OperatorPolicy,
// and OLM's account.
func externalCases() []valueCase {
	return []valueCase{
		{
			name:   "the definition of OperatorPolicy belongs to another program",
			values: "crds: {operatorPolicy: external}\nordering: {enabled: false}",
			check: func(t *testing.T, o objects) {
				var kinds []string
				for _, d := range of[*apiextensionsv1.CustomResourceDefinition](o) {
					kinds = append(kinds, d.Spec.Names.Kind)
				}
				same(t, "definitions", kinds, []string{"Constraint"})
				same(t, "--operator-policy-definition", flagsOf(t, o)["operator-policy-definition"],
					[]string{"external"})
				hooksOf(t, o)
				for _, hook := range one[*admissionregistrationv1.MutatingWebhookConfiguration](t, o,
					"opgate").Webhooks {
					if strings.Contains(hook.Name, "policies") {
						t.Errorf("%s changes policies", hook.Name)
					}
				}
				for name, rules := range rolesOf(o) {
					for _, rule := range rules {
						// these are for users
						if strings.HasPrefix(name, "opgate-") && name != "opgate-edit" && name != "opgate-admin" {
							checkReadOnly(t, name, rule)
						}
					}
				}
			},
		},
		{
			name:   "OLM is the user of a certificate",
			values: `olm: {identity: "system:admin"}`,
			check: func(t *testing.T, o objects) {
				checkIdentity(t, o, "system:admin", "")
				same(t, "--olm-namespace-uid", flagsOf(t, o)["olm-namespace-uid"], []string{""})
				for _, rule := range one[*rbacv1.ClusterRole](t, o, "opgate-admission").Rules {
					if slices.Contains(rule.Resources, "serviceaccounts") {
						t.Errorf("accounts may be read: %v", rule)
					}
				}
			},
		},
	}
}

// checkReadOnly wants a rule to allow no write of policies, nor of their definition by name.
func checkReadOnly(t *testing.T, role string, rule rbacv1.PolicyRule) {
	t.Helper()
	const definition = "operatorpolicies.policy.open-cluster-management.io"
	policies := slices.ContainsFunc(rule.Resources,
		func(r string) bool { return strings.HasPrefix(r, "operatorpolicies") })
	if !policies && !slices.Contains(rule.ResourceNames, definition) {
		return
	}
	for _, verb := range rule.Verbs {
		if !slices.Contains([]string{"get", "list", "watch", "override", "consent", "approve"}, verb) {
			t.Errorf("%s may %s %v", role, verb, rule.Resources)
		}
	}
}

func TestRefusedExternal(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"the add-on's policies, and our ordering": {
			values: "crds: {operatorPolicy: external}",
			want:   "crds.operatorPolicy is external: who owns OperatorPolicies reconciles Policies as well, so set ordering.enabled to false",
		},
		"another owner": {
			values: "crds: {operatorPolicy: theirs}",
			want:   "value must be one of 'managed', 'external'",
		},
		"a misspelt service account": {
			values: `olm: {identity: "system:serviceaccounts:olm:a"}`,
			want:   "is not the user name of a service account: set olm.identity to the account that OLM runs as",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := render(t.Context(), test.values); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v\nwant it to say %s", err, test.want)
			}
		})
	}
}

// TestDocumentedReleases wants the Application and the HelmRelease in docs/install.md to have values that the chart
// accepts, and to wait for one another and retry.
func TestDocumentedReleases(t *testing.T) {
	field := func(kind string, path ...string) string {
		t.Helper()
		text, err := chart.Documented(checkout, kind, path...)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	mustRender(t, field("Application", "source", "helm", "valuesObject"))
	mustRender(t, field("HelmRelease", "values"))
	same(t, "retries", strings.TrimSpace(field("Application", "syncPolicy", "retry", "limit")), "10")
	same(t, "retries", strings.TrimSpace(field("HelmRelease", "install", "remediation", "retries")), "10")
}
