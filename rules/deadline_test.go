package rules

import (
	"testing"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// TestUpgradeDeadline: the shortest wait of the policies of an upgrade counts from the creation of its plan.
func TestUpgradeDeadline(t *testing.T) {
	limited := func(wait string) *operatorpolicy.Policy {
		return policyFor("etcd", func(s *policyv1beta2.OperatorPolicySpec) { s.MaximumWait = wait })
	}
	installed := []state.Installed{{Bundle: olm.Bundle{Name: "etcd.v0.9.2", Package: "etcd", Version: "0.9.2"}}}
	for name, test := range map[string]struct {
		policies  []*operatorpolicy.Policy
		installed []state.Installed
		created   string
		want      string
	}{
		"an upgrade": {[]*operatorpolicy.Policy{limited("72h")}, installed, "2026-12-01T00:00:00Z",
			"2026-12-04T00:00:00Z"},
		"the shorter of two": {[]*operatorpolicy.Policy{limited("72h"), limited("1h")}, installed, "2026-12-01T00:00:00Z",
			"2026-12-01T01:00:00Z"},
		"a first installation": {[]*operatorpolicy.Policy{limited("72h")}, nil, "2026-12-01T00:00:00Z", ""},
		"any time":             {[]*operatorpolicy.Policy{limited("")}, installed, "2026-12-01T00:00:00Z", ""},
		"no duration":          {[]*operatorpolicy.Policy{limited("3d")}, installed, "2026-12-01T00:00:00Z", ""},
		"no time of creation":  {[]*operatorpolicy.Policy{limited("72h")}, installed, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			plan := pendingPlan("etcd 0.9.4")
			plan.Metadata.CreationTimestamp = test.created
			ns := state.NewNamespace("shop", state.NamespaceContents{Policies: test.policies, CSVs: test.installed,
				Plans: []*olm.InstallPlan{plan}, Exists: true})
			var want time.Time
			if test.want != "" {
				want = momentOf(t, test.want)
			}
			if got := UpgradeDeadline(ns, plan); !got.Equal(want) {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
	if p := limited("3d"); p.Unreadable() != "" || len(p.Invalid) != 1 || p.Invalid[0].Field != "spec.maximumWait" {
		t.Errorf("unreadable %q, faults %v", p.Unreadable(), p.Invalid)
	}
}
