package chart_test

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// TestOrderingRights looks at what Opgate may do for Policies: all of it by default, only read them without the loop.
func TestOrderingRights(t *testing.T) {
	checkOrderingRights(t, defaults)
	gone[*rbacv1.ClusterRole](t, defaults, "opgate-ordering")
	withoutLoop := mustRender(t, `{policy: {backgroundLoop: {enabled: false}}, ordering: {gatekeeper: true}}`)
	gone[*rbacv1.ClusterRole](t, withoutLoop, "opgate-ordering")
	if !grants(withoutLoop, "opgate-admission", "policies", "watch") {
		t.Error("without the loop Policies cannot be judged")
	}
}

// checkOrderingRights wants the rights to be there that only ordering needs.
func checkOrderingRights(t *testing.T, o objects) {
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
			same(t, strings.Join([]string{right[0], verb, right[1]}, " "), grants(o, right[0], right[1], verb), true)
		}
	}
}

// grants reports whether a ClusterRole has a verb on a resource.
func grants(o objects, role, resource, verb string) bool {
	return slices.ContainsFunc(rolesOf(o)["ClusterRole "+role], func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, verb)
	})
}
