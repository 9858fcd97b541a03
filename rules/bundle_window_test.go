package rules

import (
	"strings"
	"testing"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// windowPolicy allows approvals on Saturday nights in Berlin, except in a freeze.
func windowPolicy(edit func(*policyv1beta2.OperatorPolicySpec)) *operatorpolicy.Policy {
	return policyFor("etcd", func(s *policyv1beta2.OperatorPolicySpec) {
		s.ApprovalWindows = []policyv1beta2.ApprovalWindow{{Cron: "0 22 * * 6", Duration: "4h",
			TimeZone: "Europe/Berlin"}}
		s.Freezes = []policyv1beta2.Freeze{{Start: "2026-12-15T00:00:00+01:00", End: "2027-01-04T00:00:00+01:00",
			Reason: "end of year"}}
		if edit != nil {
			edit(s)
		}
	})
}

// TestApprovalWindow judges an approval, by a user and by the loop, around the edges of a window.
func TestApprovalWindow(t *testing.T) {
	for name, test := range map[string]struct {
		now  string
		edit func(*policyv1beta2.OperatorPolicySpec)
		// held is a part of the refusal, "" for none; next is when the loop judges again.
		held, next string
	}{
		"a second before": {now: "2026-11-28T21:59:59+01:00",
			held: "is open at 2026-11-28T22:00:00+01:00 (cron \"0 22 * * 6\" in Europe/Berlin for 4h)",
			next: "2026-11-28T22:00:00+01:00"},
		"open": {now: "2026-11-28T22:00:00+01:00"},
		"over": {now: "2026-11-29T02:00:00+01:00", held: "is open at 2026-12-05T22:00:00+01:00",
			next: "2026-12-05T22:00:00+01:00"},
		"frozen in a window": {now: "2026-12-19T23:00:00+01:00",
			held: `approvals are frozen until 2027-01-04T00:00:00+01:00 ("end of year"); ` +
				`waits for the next approval window, which is open at 2027-01-09T22:00:00+01:00`,
			next: "2027-01-04T00:00:00+01:00"},
		"the time is not known": {held: "waits until the time is known"},
		"a window that cannot be read": {now: "2026-11-28T22:00:00+01:00",
			held: "spec.approvalWindows[0].timeZone is not valid",
			edit: func(s *policyv1beta2.OperatorPolicySpec) { s.ApprovalWindows[0].TimeZone = "Europe/Nowhere" }},
		"a freeze that cannot be read": {now: "2026-11-28T22:00:00+01:00", held: "spec.freezes[0].end is not valid",
			edit: func(s *policyv1beta2.OperatorPolicySpec) { s.Freezes[0].End = "2026-12-14T00:00:00+01:00" }},
		"frozen for ever": {now: "2026-11-28T22:00:00+01:00", held: "approvals are frozen until 2999-01-01T00:00:00Z",
			next: "2999-01-01T00:00:00Z",
			edit: func(s *policyv1beta2.OperatorPolicySpec) {
				s.ApprovalWindows, s.Freezes = nil,
					[]policyv1beta2.Freeze{{Start: "1999-01-01T00:00:00Z", End: "2999-01-01T00:00:00Z"}}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			var now time.Time
			if test.now != "" {
				now = momentOf(t, test.now)
			}
			plan := pendingPlan("etcd 0.9.4")
			follows := &olm.Subscription{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "etcd"},
				Spec: olm.SubscriptionSpec{Package: "etcd", InstallPlanApproval: olm.ApprovalManual}}
			follows.Status.InstallPlan.Name = plan.Metadata.Name
			ns := state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{windowPolicy(test.edit)},
				Plans:         []*olm.InstallPlan{plan},
				Subscriptions: []*olm.Subscription{follows}, Exists: true})
			v := JudgePlan(PlanInput{Plan: plan, Namespace: ns, Now: now})
			if (v.Decision == verdict.Allow) != (test.held == "") || !strings.Contains(v.Refusal(), test.held) {
				t.Errorf("%v: %q, want %q", v.Decision, v.Refusal(), test.held)
			}
			loop := JudgeApproval(ApprovalInput{Plan: plan, Namespace: ns, Now: now})
			if loop.Verdict.Refusal() != v.Refusal() {
				t.Errorf("the loop judges %q, a user's approval is judged %q", loop.Verdict.Refusal(), v.Refusal())
			}
			if next := NextChange(ns, now); test.now != "" &&
				(next.IsZero() != (test.next == "") || !next.IsZero() && !next.Equal(momentOf(t, test.next))) {
				t.Errorf("judged again at %s, want %q", next, test.next)
			}
			if needs, ok := OverrideNeeds(&v, ns); test.held != "" && (!ok || len(needs) != 1) {
				t.Errorf("an override needs %v, %t", needs, ok)
			}
			if mode, _ := ns.Approval(ns.Policies()[0]); mode != olm.ApprovalManual {
				t.Errorf("installPlanApproval is %s: OLM would approve outside of windows", mode)
			}
		})
	}
}

func momentOf(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestWindowsWithoutEffect has windows of which the author is warned.
func TestWindowsWithoutEffect(t *testing.T) {
	frozen := windowPolicy(func(s *policyv1beta2.OperatorPolicySpec) { s.Freezes[0].End = "2999-01-01T00:00:00Z" })
	absent := windowPolicy(func(s *policyv1beta2.OperatorPolicySpec) { s.ComplianceType = policyv1beta2.MustNotHave })
	for name, test := range map[string]struct {
		policy *operatorpolicy.Policy
		want   string
	}{
		"a window that opens":     {policy: windowPolicy(nil)},
		"mustnothave":             {absent, "has no effect with complianceType mustnothave"},
		"a freeze without an end": {frozen, ""}, // it opens, in 2999
		"a window that is no time": {policy: windowPolicy(
			func(s *policyv1beta2.OperatorPolicySpec) { s.Freezes = nil })},
	} {
		t.Run(name, func(t *testing.T) {
			v := JudgeOperatorPolicy(OperatorPolicyInput{Policy: test.policy,
				Namespace: func(string) *state.Namespace { return nil },
				Now:       momentOf(t, "2026-12-20T00:00:00Z")})
			got := strings.Join(v.WarningTexts(), "\n")
			if v.Decision != verdict.Allow || (test.want == "") == strings.Contains(got, "spec.approvalWindows") ||
				!strings.Contains(got, test.want) {
				t.Errorf("%v: %q, want %q", v.Decision, got, test.want)
			}
		})
	}
}
