package rules

import (
	"testing"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
)

// TestUpgradeDeadline: the shortest wait of the policies of an upgrade counts from the creation of its plan.
func TestUpgradeDeadline(t *testing.T) {
	limited := func(wait string) *state.OperatorPolicy {
		return policyFor("etcd", func(s *policyv1beta2.OperatorPolicySpec) { s.MaximumWait = wait })
	}
	installed := []state.Installed{{CSV: "etcd.v0.9.2", Package: "etcd", Version: "0.9.2"}}
	for name, test := range map[string]struct {
		policies  []*state.OperatorPolicy
		installed []state.Installed
		created   string
		want      string
	}{
		"an upgrade": {[]*state.OperatorPolicy{limited("72h")}, installed, "2026-12-01T00:00:00Z",
			"2026-12-04T00:00:00Z"},
		"the shorter of two": {[]*state.OperatorPolicy{limited("72h"), limited("1h")}, installed, "2026-12-01T00:00:00Z",
			"2026-12-01T01:00:00Z"},
		"a first installation": {[]*state.OperatorPolicy{limited("72h")}, nil, "2026-12-01T00:00:00Z", ""},
		"any time":             {[]*state.OperatorPolicy{limited("")}, installed, "2026-12-01T00:00:00Z", ""},
		"no duration":          {[]*state.OperatorPolicy{limited("3d")}, installed, "2026-12-01T00:00:00Z", ""},
		"no time of creation":  {[]*state.OperatorPolicy{limited("72h")}, installed, "", ""},
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
