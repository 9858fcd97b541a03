package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

const exceptionEnd = "2026-12-01T00:00:00+01:00"

// exceptionPolicy allows etcd.v0.9.2, and etcd.v0.9.4 by an exception.
func exceptionPolicy(edit func(*policyv1beta2.OperatorPolicySpec)) *operatorpolicy.Policy {
	return policyFor("etcd", func(s *policyv1beta2.OperatorPolicySpec) {
		s.Versions = []string{"etcd.v0.9.2"}
		s.Exceptions = []policyv1beta2.Exception{{Versions: []string{"etcd.v0.9.4"}, Rules: []string{"bundle/version"},
			Reason: "CVE-2026-1234", Expires: exceptionEnd}}
		if edit != nil {
			edit(s)
		}
	})
}

// TestException judges a plan, what is installed and what would be removed around the end of an exception.
func TestException(t *testing.T) {
	digest := strings.Repeat("a", 64)
	for name, test := range map[string]struct {
		now     string
		edit    func(*policyv1beta2.OperatorPolicySpec)
		refused string
	}{
		"a second before its end": {now: "2026-11-30T23:59:59+01:00"},
		"at its end":              {now: exceptionEnd, refused: "(bundle/version)"},
		"the time is not known":   {refused: "(bundle/version)"},
		"another rule": {now: "2026-11-30T00:00:00Z", refused: "(bundle/version)",
			edit: func(s *policyv1beta2.OperatorPolicySpec) { s.Exceptions[0].Rules = []string{"bundle/upgrade"} }},
		"another version": {now: "2026-11-30T00:00:00Z", refused: "(bundle/version)",
			edit: func(s *policyv1beta2.OperatorPolicySpec) { s.Exceptions[0].Versions = []string{"etcd.v0.9.40"} }},
		"contents that the plan does not have": {now: "2026-11-30T00:00:00Z", refused: "(bundle/version)",
			edit: func(s *policyv1beta2.OperatorPolicySpec) {
				s.Exceptions[0].Versions = []string{"etcd.v0.9.4@sha256:" + digest}
			}},
		"one of two rules": {now: "2026-11-30T00:00:00Z", refused: "(bundle/version-range)",
			edit: func(s *policyv1beta2.OperatorPolicySpec) { s.VersionRange = "<0.9.4" }},
		"both rules": {now: "2026-11-30T00:00:00Z", edit: func(s *policyv1beta2.OperatorPolicySpec) {
			s.VersionRange, s.Exceptions[0].Rules = "<0.9.4", []string{"bundle/version", "bundle/version-range"}
		}},
		"one that cannot be read sets nothing aside": {now: "2026-11-30T00:00:00Z", refused: "(bundle/version)",
			edit: func(s *policyv1beta2.OperatorPolicySpec) { s.Exceptions[0].Expires = "2999-01-01" }},
		"mustnothave": {now: "2026-11-30T00:00:00Z", edit: func(s *policyv1beta2.OperatorPolicySpec) {
			s.ComplianceType, s.Versions, s.Exceptions[0].Rules = policyv1beta2.MustNotHave, nil,
				[]string{"bundle/mustnothave"}
		}},
		"mustnothave, ended": {now: exceptionEnd, refused: "(bundle/mustnothave)",
			edit: func(s *policyv1beta2.OperatorPolicySpec) {
				s.ComplianceType, s.Versions, s.Exceptions[0].Rules = policyv1beta2.MustNotHave, nil,
					[]string{"bundle/mustnothave"}
			}},
		"a window that is closed": {now: "2026-11-30T00:00:00Z", edit: func(s *policyv1beta2.OperatorPolicySpec) {
			s.ApprovalWindows = []policyv1beta2.ApprovalWindow{{Cron: "0 22 * * 6", Duration: "4h"}}
			s.Exceptions[0].Rules = []string{"bundle/version", "bundle/approval-window"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var now time.Time
			if test.now != "" {
				now = momentOf(t, test.now)
			}
			p := exceptionPolicy(test.edit)
			plan := pendingPlan("etcd 0.9.4")
			ns := state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{p},
				Plans: []*olm.InstallPlan{plan}, Exists: true})
			v := JudgePlan(PlanInput{Plan: plan, Namespace: ns, Now: now})
			if (v.Decision == verdict.Allow) != (test.refused == "") || !strings.Contains(v.Refusal(), test.refused) {
				t.Errorf("%v: %q, want %q", v.Decision, v.Refusal(), test.refused)
			}
			named := `set aside by exception 1 of OperatorPolicy policies/etcd until 2026-12-01T00:00:00+01:00 ("CVE-2026-1234") (bundle/exception): etcd.v0.9.4 `
			if warnings := strings.Join(v.WarningTexts(), "\n"); (test.refused == "") != strings.Contains(warnings,
				named) && name != "one of two rules" {
				t.Errorf("warnings %q, want %q", warnings, named)
			}
			if note := v.ApprovalNote(""); test.refused == "" && !strings.Contains(note, named) {
				t.Errorf("the event on the approval is %q", note)
			}
			forbidden, _ := bundle.Forbids(p, "etcd.v0.9.4", "0.9.4",
				olm.Catalog{Namespace: "olm", Name: "operatorhubio-catalog"}, now)
			covered, _ := bundle.Covers(p, "etcd.v0.9.4", "0.9.4", now)
			if p.MustNotHave && forbidden != (test.refused != "") {
				t.Errorf("forbidden is %t: the loop would not agree with the gate", forbidden)
			}
			if byName := name == "contents that the plan does not have"; !p.MustNotHave &&
				covered != (test.refused == "" || byName) {
				t.Errorf("covered is %t: the loop would not agree with the gate", covered)
			}
		})
	}
}

// TestExceptionNeverOpensAgain: the leader has recorded the end in the status. A clock that is behind, on another
// replica or after a restart, does not open the exception again; one that is prolonged is another one.
func TestExceptionNeverOpensAgain(t *testing.T) {
	leader, behind := momentOf(t, exceptionEnd), momentOf(t, exceptionEnd).Add(-time.Minute)
	op := exceptionPolicy(nil).Object.DeepCopy()
	if ended := NewOperatorPolicy(op).Exceptions().Ended(behind); len(ended) > 0 {
		t.Fatalf("%v ended before its end", ended)
	}
	op.Status.EndedExceptions = NewOperatorPolicy(op).Exceptions().Ended(leader)
	plan := pendingPlan("etcd 0.9.4")
	judge := func() verdict.Decision {
		ns := state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{NewOperatorPolicy(op)}, Exists: true})
		v := JudgePlan(PlanInput{Plan: plan, Namespace: ns, Now: behind})
		return v.Decision
	}
	if got := judge(); got != verdict.Deny {
		t.Errorf("a minute before the end, by another clock, after it was recorded: %v", got)
	}
	if again := NewOperatorPolicy(op).Exceptions().Ended(behind); !slices.Equal(again, op.Status.EndedExceptions) {
		t.Errorf("a leader whose clock is behind records %v, before %v", again, op.Status.EndedExceptions)
	}
	op.Spec.Exceptions[0].Reason = "written in other words"
	if got := judge(); got != verdict.Deny {
		t.Errorf("with another reason: %v", got)
	}
	op.Spec.Exceptions[0].Expires = "2026-12-01T00:00:01+01:00"
	if got := judge(); got != verdict.Allow {
		t.Errorf("prolonged: %v", got)
	}
}

// TestU1ShortenedException: an exception whose end is recorded is shortened or narrowed, which needs no right, and
// judged by a replica whose clock is behind (threat O67).
func TestU1ShortenedException(t *testing.T) {
	leader, behind := momentOf(t, exceptionEnd), momentOf(t, exceptionEnd).Add(-time.Minute)
	for name, test := range map[string]struct {
		edit     func(*policyv1beta2.Exception)
		recorded bool
		want     verdict.Decision
	}{
		"control: its end is not recorded":     {want: verdict.Allow},
		"control: unchanged":                   {recorded: true, want: verdict.Deny},
		"attack: shortened by a second":        {func(e *policyv1beta2.Exception) { e.Expires = "2026-11-30T23:59:59+01:00" }, true, verdict.Deny},
		"attack: the same end in another form": {func(e *policyv1beta2.Exception) { e.Expires = "2026-11-30T23:00:00.0Z" }, true, verdict.Deny},
		"attack: for more rules than it had": {func(e *policyv1beta2.Exception) {
			e.Rules = append(e.Rules, "bundle/upgrade")
		}, true, verdict.Deny},
		"control: prolonged": {func(e *policyv1beta2.Exception) { e.Expires = "2026-12-01T00:00:01+01:00" }, true, verdict.Allow},
	} {
		op := exceptionPolicy(nil).Object.DeepCopy()
		if test.recorded {
			op.Status.EndedExceptions = append(NewOperatorPolicy(op).Exceptions().Ended(leader), "sha256:of an earlier release")
		}
		if test.edit != nil {
			test.edit(&op.Spec.Exceptions[0])
		}
		ns := state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{NewOperatorPolicy(op)}, Exists: true})
		if v := JudgePlan(PlanInput{Plan: pendingPlan("etcd 0.9.4"), Namespace: ns, Now: behind}); v.Decision != test.want {
			t.Errorf("%s: %v, want %v", name, v.Decision, test.want)
		}
	}
}

// TestExceptionTimer: the time alone changes an exception when it becomes one that ends soon, and when it ends.
func TestExceptionTimer(t *testing.T) {
	p, end := exceptionPolicy(nil), momentOf(t, exceptionEnd)
	for _, test := range []struct{ now, want time.Time }{
		{end.Add(-20 * 24 * time.Hour), end.Add(-operatorpolicy.Notice)}, {end.Add(-operatorpolicy.Notice), end},
		{end.Add(-time.Second), end}, {end, time.Time{}},
	} {
		if got := p.Exceptions().Next(test.now); !got.Equal(test.want) {
			t.Errorf("at %s: judged again at %s, want %s", test.now, got, test.want)
		}
	}
	if ending := p.Exceptions().At(end.Add(-operatorpolicy.Notice)).Ending; len(ending) != 1 {
		t.Errorf("two weeks before its end: %q", ending)
	}
}

// TestInvalidExceptions are refused with the field, and do not make the policy one that cannot be read.
func TestInvalidExceptions(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*policyv1beta2.Exception)
		want string
	}{
		"no version": {func(e *policyv1beta2.Exception) { e.Versions = nil },
			"spec.exceptions[0].versions"},
		"every version": {func(e *policyv1beta2.Exception) { e.Versions = []string{" , "} },
			"spec.exceptions[0].versions"},
		"too many versions": {func(e *policyv1beta2.Exception) { e.Versions = []string{many(33)} },
			"spec.exceptions[0].versions"},
		"a template": {func(e *policyv1beta2.Exception) { e.Versions = []string{"{{ x }}"} },
			"spec.exceptions[0].versions[0]"},
		"no rule": {func(e *policyv1beta2.Exception) { e.Rules = nil }, "spec.exceptions[0].rules"},
		"a rule that is none": {func(e *policyv1beta2.Exception) { e.Rules = []string{"bundle/*"} },
			"spec.exceptions[0].rules[0]"},
		"a rule without override": {func(e *policyv1beta2.Exception) { e.Rules = []string{"plan/frozen"} },
			"spec.exceptions[0].rules[0]"},
		"a rule of no policy": {func(e *policyv1beta2.Exception) { e.Rules = []string{"bundle/constraint"} },
			"spec.exceptions[0].rules[0]"},
		"a policy that is no text": {func(e *policyv1beta2.Exception) { e.Rules = []string{"policy/unreadable"} },
			"spec.exceptions[0].rules[0]"},
		"no reason": {func(e *policyv1beta2.Exception) { e.Reason = " " }, "spec.exceptions[0].reason"},
		"a long reason": {func(e *policyv1beta2.Exception) { e.Reason = strings.Repeat("ä", 257) },
			"spec.exceptions[0].reason"},
		"no end": {func(e *policyv1beta2.Exception) { e.Expires = "" }, "spec.exceptions[0].expires"},
		"a day": {func(e *policyv1beta2.Exception) { e.Expires = "2026-12-01" },
			"spec.exceptions[0].expires"},
		"no time": {func(e *policyv1beta2.Exception) { e.Expires = "never" },
			"spec.exceptions[0].expires"},
	} {
		t.Run(name, func(t *testing.T) {
			p := exceptionPolicy(func(s *policyv1beta2.OperatorPolicySpec) { test.edit(&s.Exceptions[0]) })
			v := JudgeOperatorPolicy(OperatorPolicyInput{Policy: p,
				Namespace: func(string) *state.Namespace { return nil }})
			if len(v.Reasons) == 0 || v.Reasons[0].Field != test.want || v.Reasons[0].Rule != RuleOperatorPolicyField {
				t.Errorf("%v, want %s", v.Reasons, test.want)
			}
			if p.Unreadable() != "" || len(p.Exceptions()) > 0 {
				t.Errorf("unreadable %q, %d exceptions", p.Unreadable(), len(p.Exceptions()))
			}
		})
	}
	p := exceptionPolicy(func(s *policyv1beta2.OperatorPolicySpec) { s.Exceptions = slices.Repeat(s.Exceptions, 33) })
	if len(p.Exceptions()) > 0 || len(p.Invalid) != 1 {
		t.Errorf("33 exceptions: %d count, %v", len(p.Exceptions()), p.Invalid)
	}
}

func many(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("etcd.v1.0.%d", i)
	}
	return strings.Join(names, ",")
}

// TestReviewedExceptions: what has ended is refused in a review of files, and warned of on a cluster.
func TestReviewedExceptions(t *testing.T) {
	end := momentOf(t, exceptionEnd)
	for name, test := range map[string]struct {
		now    time.Time
		review bool
		want   verdict.Decision
		warns  bool
	}{
		"ended, files":        {now: end, review: true, want: verdict.Deny},
		"ended, cluster":      {now: end, warns: true},
		"in 14 days, files":   {now: end.Add(-operatorpolicy.Notice), review: true, warns: true},
		"in 14 days, cluster": {now: end.Add(-operatorpolicy.Notice)},
		"in 15 days, files":   {now: end.Add(-operatorpolicy.Notice - time.Second), review: true},
	} {
		t.Run(name, func(t *testing.T) {
			v := JudgeOperatorPolicy(OperatorPolicyInput{Policy: exceptionPolicy(nil),
				Namespace: func(string) *state.Namespace { return nil },
				Now:       test.now, Review: test.review})
			warns := slices.ContainsFunc(v.Warnings,
				func(r verdict.Reason) bool { return r.Rule == RuleOperatorPolicyExceptionEnded })
			if v.Decision != test.want || warns != test.warns {
				t.Errorf("%v, %v", v.Decision, v.WarningTexts())
			}
		})
	}
}

// TestExceptedStepIsNoEscape: an operator that was installed under an exception is not one that escaped, once that has
// ended; one that was installed later is.
func TestExceptedStepIsNoEscape(t *testing.T) {
	op := exceptionPolicy(nil).Object.DeepCopy()
	op.Status.EndedExceptions = NewOperatorPolicy(op).Exceptions().Ended(momentOf(t, exceptionEnd))
	plan := pendingPlan("etcd 0.9.4")
	plan.Spec.Approved, plan.Status.Phase = true, olm.PhaseComplete
	ns := state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{NewOperatorPolicy(op)},
		Plans: []*olm.InstallPlan{plan}, Exists: true})
	for created, want := range map[string]int{"2026-11-30T22:59:59Z": 0, "2026-11-30T23:00:00Z": 1} {
		csv := &olm.CSV{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "etcd.v0.9.4", CreationTimestamp: created}}
		if refused, _ := JudgeEscape(csv, ns); len(refused) != want {
			t.Errorf("created at %s: %v", created, refused)
		}
	}
}
