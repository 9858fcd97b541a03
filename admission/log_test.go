package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgate/opgate/rules/verdict"
)

// TestLogKeys: lines about objects have the same keys, whatever the kind, and name each rule and policy once.
func TestLogKeys(t *testing.T) {
	for _, test := range []struct {
		object string
		want   []any
	}{
		{object: "installplan shop/install-x7", want: []any{"kind", "installplan", "namespace", "shop", "name",
			"install-x7"}},
		{object: "constraint tenants", want: []any{"kind", "constraint", "namespace", "", "name", "tenants"}},
		{object: "installplan", want: []any{"kind", "installplan", "namespace", "", "name", ""}},
	} {
		if diff := cmp.Diff(test.want, objectKeys(&verdict.Verdict{Object: test.object})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.object, diff)
		}
	}
	v := &verdict.Verdict{Reasons: []verdict.Reason{
		{Rule: "bundle/version", From: verdict.PolicyRef{Kind: verdict.KindOperatorPolicy, Namespace: "policies", Name: "etcd"}},
		{Rule: "bundle/version", From: verdict.PolicyRef{Kind: verdict.KindOperatorPolicy, Namespace: "policies", Name: "other"}},
		{Rule: "plan/frozen"},
	}}
	want := []any{"rules", []string{"bundle/version", "plan/frozen"},
		"policies", []string{"OperatorPolicy policies/etcd", "OperatorPolicy policies/other"}}
	if diff := cmp.Diff(want, reasonKeys(v)); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{"rules", []string{}, "policies", []string{}},
		reasonKeys(&verdict.Verdict{})); diff != "" {
		t.Errorf("no reasons (-want +got):\n%s", diff)
	}
}
