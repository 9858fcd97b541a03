package rules

import (
	"fmt"
	"testing"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// crowd returns a namespace with n policies, one of which governs etcd.
func crowd(n int) *state.Namespace {
	policies := make([]*operatorpolicy.Policy, 0, n)
	for i := range n - 1 {
		policies = append(policies, policyFor(fmt.Sprintf("package-%d", i), versions("one.v1.0.0", "two.v1.0.0")))
	}
	policies = append(policies, policyFor("etcd", versions("etcd.v0.9.2")))
	return state.NewNamespace("shop", state.NamespaceContents{Policies: policies})
}

func subscriptionTo(pkg string) *olm.Subscription {
	return &olm.Subscription{
		Metadata: olm.ObjectMeta{Namespace: "shop", Name: pkg},
		Spec: olm.SubscriptionSpec{Package: pkg, Channel: "stable", Source: "operatorhubio-catalog",
			SourceNamespace: "olm", InstallPlanApproval: olm.ApprovalManual},
	}
}

// The cost of judging must not depend on the number of policies.
var crowds = []int{1, 100, 10_000}

// BenchmarkJudgeApproval is the loop's work per event in a namespace: it judges all plans, of which at most one waits.
// The others, outdated ones included, cost nanoseconds each.
func BenchmarkJudgeApproval(b *testing.B) {
	for _, n := range []int{1, 2_000} {
		plan := pendingPlan("etcd 0.9.2")
		plans := []*olm.InstallPlan{plan}
		for i := range n - 1 {
			other := *plan
			other.Metadata.Name = fmt.Sprintf("install-%d", i)
			if i%2 == 0 {
				other.Status.Phase = olm.PhaseComplete
			}
			plans = append(plans, &other)
		}
		s := subscriptionTo("etcd")
		s.Status.InstallPlan.Name = plan.Metadata.Name
		ns := state.NewNamespace("shop",
			state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v0.9.2"))},
				Subscriptions: []*olm.Subscription{s}, Plans: plans})
		b.Run(fmt.Sprintf("plans=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				approved := 0
				for _, p := range ns.Plans() {
					if a := JudgeApproval(ApprovalInput{Plan: p, Namespace: ns,
						Ungoverned: HoldUngoverned}); a.Should() {
						approved++
					}
				}
				if approved != 1 {
					b.Fatalf("%d plans are to be approved", approved)
				}
			}
		})
	}
}

// TestAllocations checks the allocations per decision. The first number was measured when the budget was set (Go 1.26),
// the margin is for changes in the libraries; a larger increase is a regression to explain. The number of policies must
// not matter.
func TestAllocations(t *testing.T) {
	for _, n := range crowds {
		ns := crowd(n)
		allowed := SubscriptionInput{New: subscriptionTo("etcd"), Namespace: ns, Mode: DenyApproval}
		ungoverned := SubscriptionInput{New: subscriptionTo("grafana"), Namespace: ns, Mode: DenyApproval}
		plan := PlanInput{Plan: pendingPlan("etcd 0.9.2"), Namespace: ns}
		refused := PlanInput{Plan: pendingPlan("etcd 0.9.4"), Namespace: ns}
		for _, c := range []struct {
			name   string
			budget float64
			judge  func()
		}{
			{"subscription allowed", 6, func() { JudgeSubscription(allowed) }},
			{"subscription ungoverned", 6, func() { JudgeSubscription(ungoverned) }},
			{"plan allowed", 40, func() { JudgePlan(plan) }},
			{"plan refused", 55, func() { JudgePlan(refused) }},
		} {
			if got := testing.AllocsPerRun(200, c.judge); got > c.budget {
				t.Errorf("%s with %d policies: %.0f allocations, the budget is %.0f", c.name, n, got, c.budget)
			} else {
				t.Logf("%s with %d policies: %.0f of %.0f allocations", c.name, n, got, c.budget)
			}
		}
	}
}
