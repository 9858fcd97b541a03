package chart_test

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// orderingCases are values about Policies and PolicySets.
func orderingCases() []valueCase {
	write := []string{"list", "watch", "create", "update", "delete"}
	return []valueCase{
		{
			name: "without ordering nothing is left of Policies, whatever else is set",
			values: `
ordering:
  enabled: false
  gatekeeper: true
  rules: [{apiGroups: [example.com], resources: [widgets], verbs: [create]}]`,
			check: func(t *testing.T, o objects) {
				same(t, "--ordering", flagsOf(t, o)["ordering"], []string{"false"})
				for _, name := range orderingDefinitions {
					gone[*apiextensionsv1.CustomResourceDefinition](t, o, name)
				}
				same(t, "other definitions", len(definitionsOf(t, o)),
					len(definitionsOf(t, defaults))-len(orderingDefinitions))
				for _, hook := range hooksOf(t, o) {
					if hook.Name == "policies.opgate.io" || hook.Name == "policysets.opgate.io" {
						t.Errorf("%s is still called", hook.Name)
					}
				}
				checkOrderingRights(t, o, false)
				gone[*rbacv1.ClusterRole](t, o, "opgate-ordering")
				gone[*rbacv1.ClusterRoleBinding](t, o, "opgate-ordering")
			},
		},
		{
			name:   "Gatekeeper's kinds, those that its templates define included",
			values: "ordering: {gatekeeper: true}",
			check: func(t *testing.T, o objects) {
				same(t, "--gatekeeper-templates", flagsOf(t, o)["gatekeeper-templates"], []string{"true"})
				same(t, "rules", one[*rbacv1.ClusterRole](t, o, "opgate-ordering").Rules, []rbacv1.PolicyRule{
					{APIGroups: []string{"templates.gatekeeper.sh"}, Resources: []string{"constrainttemplates"},
						Verbs: write},
					{APIGroups: []string{"constraints.gatekeeper.sh"}, Resources: []string{"*"}, Verbs: write},
				})
				one[*rbacv1.ClusterRoleBinding](t, o, "opgate-ordering")
			},
		},
		{
			name: "other kinds of templates and dependencies",
			values: `
ordering:
  rules:
    - {apiGroups: [example.com], resources: [widgets], verbs: [list, watch, create, update, delete]}
    - {apiGroups: [apps], resources: [deployments], resourceNames: [shop], verbs: [list, watch]}`,
			check: func(t *testing.T, o objects) {
				same(t, "rules", one[*rbacv1.ClusterRole](t, o, "opgate-ordering").Rules, []rbacv1.PolicyRule{
					{APIGroups: []string{"example.com"}, Resources: []string{"widgets"}, Verbs: write},
					{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{"shop"},
						Verbs: []string{"list", "watch"}},
				})
				one[*rbacv1.ClusterRoleBinding](t, o, "opgate-ordering")
			},
		},
	}
}

// TestOrderingRights looks at what Opgate may do for Policies: all of it by default, only read them without the loop.
func TestOrderingRights(t *testing.T) {
	checkOrderingRights(t, defaults, true)
	gone[*rbacv1.ClusterRole](t, defaults, "opgate-ordering")
	withoutLoop := mustRender(t, `{policy: {backgroundLoop: {enabled: false}}, ordering: {gatekeeper: true}}`)
	gone[*rbacv1.ClusterRole](t, withoutLoop, "opgate-ordering")
	if !grants(withoutLoop, "opgate-admission", "policies", "watch") {
		t.Error("without the loop Policies cannot be judged")
	}
}

// checkOrderingRights wants the rights to be there that only ordering needs, or none of them.
func checkOrderingRights(t *testing.T, o objects, want bool) {
	t.Helper()
	for _, right := range [][3]string{
		{"opgate-admission", "policies", "list watch"},
		{"opgate-admission", "policysets", "list watch"},
		{"opgate-loop", "policies", "patch"},
		{"opgate-loop", "policies/status", "patch"},
		{"opgate-loop", "policysets/status", "patch"},
		{"opgate-loop", "policies/finalizers", "update"},
		{"opgate-loop", "operatorpolicies", "create update delete"},
		{"opgate-loop", "constraints", "create update delete"},
		{"opgate-loop", "configurationpolicies", "list watch"},
		{"opgate-loop", "certificatepolicies", "list watch"},
		{"opgate-view", "policies", "get list watch"},
		{"opgate-edit", "policysets", "create update patch delete"},
	} {
		for verb := range strings.FieldsSeq(right[2]) {
			same(t, strings.Join([]string{right[0], verb, right[1]}, " "), grants(o, right[0], right[1], verb), want)
		}
	}
}

// grants reports whether a ClusterRole has a verb on a resource.
func grants(o objects, role, resource, verb string) bool {
	return slices.ContainsFunc(rolesOf(o)["ClusterRole "+role], func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, verb)
	})
}
