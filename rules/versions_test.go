package rules

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/cputime"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

func TestSplitVersions(t *testing.T) {
	for _, c := range []struct{ entries, want []string }{
		{nil, nil},
		{[]string{" bar ", "a,b", ", ,c,"}, []string{"bar", "a", "b", "c"}}, // the existing controller's own example
		{[]string{"a", "a", "b,a"}, []string{"a", "b"}},
		{[]string{"\ta\n"}, []string{"a"}},
		{[]string{"", " , "}, nil},
	} {
		if got := operatorpolicy.SplitVersions(c.entries); !slices.Equal(got, c.want) {
			t.Errorf("%q is read as %q, want %q", c.entries, got, c.want)
		}
	}
}

// TestH3VersionsAreBounded has as many names as a file or an object can have: a policy with more than are read is not
// valid, so that it holds what it governs, and takes little time.
func TestH3VersionsAreBounded(t *testing.T) {
	var list strings.Builder
	for i := range 1_000_000 {
		list.WriteString(strconv.Itoa(i))
		list.WriteByte(',')
	}
	op := &policyv1beta2.OperatorPolicy{Spec: policyv1beta2.OperatorPolicySpec{RemediationAction: policyv1beta2.Enforce,
		ComplianceType: policyv1beta2.MustHave, UpgradeApproval: policyv1beta2.UpgradeApprovalNone,
		Subscription: policyv1beta2.SubscriptionTemplate{Name: "etcd"}}}
	for _, tc := range []struct {
		name     string
		versions []string
		valid    bool
	}{
		{name: "the most names", versions: []string{strings.Join(strings.SplitN(list.String(), ",",
			operatorpolicy.MaxVersions+1)[:operatorpolicy.MaxVersions], ",")}, valid: true},
		{name: "attack: a million names in one entry", versions: []string{list.String()}},
		{name: "attack: a million names in two entries", versions: []string{list.String()[:operatorpolicy.MaxVersions],
			list.String()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			op.Spec.Versions = tc.versions
			begin := cputime.Used()
			p := NewOperatorPolicy(op)
			if took := cputime.Used() - begin; took > 10*time.Second { // in quadratic time an hour
				t.Errorf("it took %v", took)
			}
			if valid := p.Unreadable() == ""; valid != tc.valid || len(p.Versions.Entries) > operatorpolicy.MaxVersions+1 {
				t.Errorf("valid: %t, with %d names: %s", valid, len(p.Versions.Entries), p.Unreadable())
			}
		})
	}
}
