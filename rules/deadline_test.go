package rules

import (
	"testing"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
)

// TestUpgradeDeadline: the shortest wait of the policies of an upgrade counts from the creation of its plan.
func TestUpgradeDeadline(t *testing.T) {
	limited := func(wait string) *OperatorPolicy {
		return policyFor("etcd", func(s *policyv1beta2.OperatorPolicySpec) { s.MaximumWait = wait })
	}
	installed := []Installed{{CSV: "etcd.v0.9.2", Package: "etcd", Version: "0.9.2"}}
	for name, test := range map[string]struct {
		policies  []*OperatorPolicy
		installed []Installed
		created   string
		want      string
	}{
		"an upgrade": {[]*OperatorPolicy{limited("72h")}, installed, "2026-12-01T00:00:00Z",
			"2026-12-04T00:00:00Z"},
		"the shorter of two": {[]*OperatorPolicy{limited("72h"), limited("1h")}, installed, "2026-12-01T00:00:00Z",
			"2026-12-01T01:00:00Z"},
		"a first installation": {[]*OperatorPolicy{limited("72h")}, nil, "2026-12-01T00:00:00Z", ""},
		"any time":             {[]*OperatorPolicy{limited("")}, installed, "2026-12-01T00:00:00Z", ""},
		"no duration":          {[]*OperatorPolicy{limited("3d")}, installed, "2026-12-01T00:00:00Z", ""},
		"no time of creation":  {[]*OperatorPolicy{limited("72h")}, installed, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			plan := pendingPlan("etcd 0.9.4")
			plan.Metadata.CreationTimestamp = test.created
			ns := NewNamespace("shop", NamespaceContents{Policies: test.policies, CSVs: test.installed,
				Plans: []*olm.InstallPlan{plan}, Exists: true})
			var want time.Time
			if test.want != "" {
				want = momentOf(t, test.want)
			}
			if got := ns.UpgradeDeadline(plan); !got.Equal(want) {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
	if p := limited("3d"); p.Unreadable() != "" || len(p.invalid) != 1 || p.invalid[0].Field != "spec.maximumWait" {
		t.Errorf("unreadable %q, faults %v", p.Unreadable(), p.invalid)
	}
}
