package operatorpolicy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// waiting returns a plan of a namespace.
func waiting(uid, created string) *olm.InstallPlan {
	return &olm.InstallPlan{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "install-" + uid, UID: uid,
		CreationTimestamp: created}}
}

// approvalOf returns the result for a plan that a rule holds, or that no rule holds.
func approvalOf(rule verdict.RuleID) *rules.Approval {
	a := &rules.Approval{IsCandidate: true}
	if rule != "" {
		a.Verdict = verdict.Verdict{Decision: verdict.Hold, Reasons: []verdict.Reason{
			{Rule: rule, Decision: verdict.Hold}, {Rule: bundle.RuleConsent, Decision: verdict.Hold}}}
	}
	return a
}

// gathered returns the samples of pending plans, and of histograms their count and sum.
func gathered(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		name := strings.TrimPrefix(f.GetName(), "opgate_")
		for _, m := range f.GetMetric() {
			switch {
			case m.GetHistogram() != nil && m.GetHistogram().GetSampleCount() > 0:
				all = append(all, fmt.Sprintf("%s %d %v", name, m.GetHistogram().GetSampleCount(),
					m.GetHistogram().GetSampleSum()))
			case m.GetGauge() != nil && strings.HasPrefix(name, "plans_held"):
				all = append(all, fmt.Sprintf("%s{%s} %d", name, m.GetLabel()[0].GetValue(),
					int64(m.GetGauge().GetValue())))
			case m.GetGauge() != nil && strings.HasPrefix(name, "upgrade_deadline"):
				all = append(all, fmt.Sprintf("%s{} %d", name, int64(m.GetGauge().GetValue())))
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func leads() *snapshot.Snapshot { return &snapshot.Snapshot{} }

// TestPendingPlans follows plans from their creation to their approval.
func TestPendingPlans(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	p := newPending(registry, leads)
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	now := noon
	clock := func() time.Time { return now }
	old, young := waiting("old", "2026-11-22T11:00:00Z"), waiting("young", "2026-11-22T11:30:00Z")
	check := func(want ...string) {
		t.Helper()
		if got := gathered(t, registry); got != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	}
	check()

	j := p.judge("shop", noon, clock)
	j.judged(young, approvalOf(bundle.RuleVersion), time.Time{})
	j.judged(old, approvalOf(bundle.RuleVersion), time.Time{})
	j.judged(waiting("hostile", "yesterday"), approvalOf(bundle.RuleVersion), time.Time{})
	j.end()
	other := p.judge("mine", noon, clock)
	other.judged(waiting("by hand", "2026-11-22T10:00:00Z"),
		&rules.Approval{IsCandidate: true, Blockers: []string{"etcd is held"}}, time.Time{})
	other.end()
	check("plans_held_oldest_timestamp_seconds{bundle/version} 1795345200",
		"plans_held_oldest_timestamp_seconds{none} 1795341600",
		"plans_held{bundle/version} 3", "plans_held{none} 1")

	// The rules allow both; the first attempt fails for one of them.
	now = noon.Add(2 * time.Second)
	j = p.judge("shop", noon.Add(time.Second), clock)
	j.judged(young, approvalOf(""), time.Time{})
	j.judged(old, approvalOf(""), time.Time{})
	j.approved(old)
	j.end()
	check("loop_approval_age_seconds 1 3602", "loop_approval_latency_seconds 1 1",
		"plans_held_oldest_timestamp_seconds{none} 1795341600",
		"plans_held{bundle/version} 0", "plans_held{none} 2")

	now = noon.Add(5 * time.Second)
	j = p.judge("shop", noon.Add(5*time.Second), clock)
	j.judged(young, approvalOf(""), time.Time{})
	j.approved(young)
	j.end()
	p.judge("mine", noon, clock).end() // approved by a user
	check("loop_approval_age_seconds 2 5407", "loop_approval_latency_seconds 2 5", "plans_held{bundle/version} 0",
		"plans_held{none} 0")
	if len(p.plans) > 0 {
		t.Errorf("namespaces are kept: %v", p.plans)
	}
}

// TestDeadlineOfUpgrades exports the first one of the upgrades that wait, and none once these are approved.
func TestDeadlineOfUpgrades(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := newPending(registry, leads)
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return noon }
	check := func(want string) {
		t.Helper()
		if got := gathered(t, registry); !strings.Contains(got, want) || want == "" &&
			strings.Contains(got, "deadline") {
			t.Errorf("got\n%s\nwant %q", got, want)
		}
	}
	j := p.judge("shop", noon, clock)
	j.judged(waiting("a", "2026-11-22T11:00:00Z"), approvalOf(bundle.RuleVersion), noon.Add(time.Hour))
	j.judged(waiting("b", "2026-11-22T11:00:00Z"), approvalOf(bundle.RuleVersion), time.Time{})
	j.end()
	j = p.judge("mine", noon, clock)
	j.judged(waiting("c", "2026-11-22T10:00:00Z"), approvalOf(bundle.RuleVersion), noon.Add(-time.Hour))
	j.end()
	check("upgrade_deadline_timestamp_seconds{} 1795345200")
	p.judge("mine", noon, clock).end()
	check("upgrade_deadline_timestamp_seconds{} 1795352400")
	p.judge("shop", noon, clock).end()
	check("")
}
