package operatorpolicy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/opgate/opgate/snapshot"
)

// TestB7NamesAreApart checks that the public registry counts policies, and another one names them.
func TestB7NamesAreApart(t *testing.T) {
	registry, named := prometheus.NewRegistry(), prometheus.NewRegistry()
	var current *snapshot.Snapshot
	NewMetrics(registry, named, func() *snapshot.Snapshot { return current })
	series := func(registry *prometheus.Registry, family string) string {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range families {
			for _, metric := range f.GetMetric() {
				text := ""
				for _, label := range metric.GetLabel() {
					text += label.GetValue() + " "
				}
				if registry != named && strings.Contains(text, "secret") {
					t.Errorf("%s names %s", f.GetName(), text)
				}
				if f.GetName() == family {
					got = append(got, fmt.Sprint(text, metric.GetGauge().GetValue()))
				}
			}
		}
		slices.Sort(got)
		return strings.Join(got, ", ")
	}
	var b snapshot.Builder
	put := func(name, subscription, compliant string) {
		current = b.Put(time.Time{}, (&snapshot.Reader{}).Read(snapshot.OperatorPolicies, fmt.Appendf(nil,
			`{"metadata":{"name":%q,"namespace":"secret-project"},"spec":{"severity":"low","complianceType":"musthave",
				"remediationAction":"inform","upgradeApproval":"None","subscription":%s},"status":{"compliant":%q}}`, name,
			subscription, compliant)))
	}
	check := func(counts, names string) {
		t.Helper()
		if got := series(registry, "opgate_operatorpolicies"); got != counts {
			t.Errorf("counts are %q, want %q", got, counts)
		}
		if got := series(named, "cluster_policy_governance_info"); got != names {
			t.Errorf("series with names are %q, want %q", got, names)
		}
	}
	check("", "") // another replica leads
	put("secret-a", `{"name":"a","namespace":"shop"}`, "Compliant")
	put("secret-b", `{"name":"b","namespace":"bank"}`, "")
	check("Compliant 1, NonCompliant 0, Unknown 1, Unreadable 0",
		"OperatorPolicy secret-a secret-project low 0, OperatorPolicy secret-b secret-project low -1")
	put("secret-b", `{"name":"b","namespace":"bank"}`, "NonCompliant")
	check("Compliant 1, NonCompliant 1, Unknown 0, Unreadable 0",
		"OperatorPolicy secret-a secret-project low 0, OperatorPolicy secret-b secret-project low 1")
	put("secret-b", `{"name":"b","namespace":"bank"},"versions":5`, "NonCompliant")
	check("Compliant 1, NonCompliant 0, Unknown 0, Unreadable 1",
		"OperatorPolicy secret-a secret-project low 0, OperatorPolicy secret-b secret-project  -1")
}
