package rules

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// TestNotes checks the texts of events.
func TestNotes(t *testing.T) {
	etcd := policyFor("etcd", versions("etcd.v0.9.2"))
	channel := policyFor("etcd", func(s *policyv1beta2.OperatorPolicySpec) { s.Subscription.Source = "other" })
	judge := func(plan *olm.InstallPlan, policies ...*operatorpolicy.Policy) *Approval {
		plan.Metadata.Name = "install-x7"
		subscription := &olm.Subscription{
			Metadata: olm.ObjectMeta{Namespace: "shop", Name: "etcd"},
			Spec:     olm.SubscriptionSpec{Package: "etcd", InstallPlanApproval: olm.ApprovalManual},
		}
		subscription.Status.InstallPlan.Name = plan.Metadata.Name
		ns := state.NewNamespace("shop", state.NamespaceContents{Policies: policies, Plans: []*olm.InstallPlan{plan},
			Subscriptions: []*olm.Subscription{subscription}})
		a := JudgeApproval(ApprovalInput{Plan: plan, Namespace: ns, Ungoverned: HoldUngoverned})
		return &a
	}
	denied := judge(pendingPlan("etcd 0.9.4"), etcd)
	overridden := denied.Verdict.Overridden(RulePlanOverride, "security fix", "")
	consented := verdict.Verdict{CSVs: []verdict.CSV{{CSV: "etcd.v0.9.4", Disposition: verdict.Allowed,
		By: []string{"OperatorPolicy policies/etcd"}}},
		Consents: []verdict.Consent{{Rule: bundle.RuleConsent, CSV: "etcd.v0.9.4", Digest: "sha256:1f",
			Policy: "OperatorPolicy policies/etcd",
			From:   metakey.Consent, By: "alice"}}}
	allowed := judge(pendingPlan("etcd 0.9.2 vault", "vault 1.0.0", "grafana 1.0.0"), etcd)
	for name, c := range map[string]struct{ got, want string }{
		"denied": {denied.Note(1024),
			"etcd.v0.9.4 is not allowed by OperatorPolicy policies/etcd (bundle/version): allowed is etcd.v0.9.2"},
		"two reasons": {judge(pendingPlan("etcd 0.9.4"), etcd, channel).Note(1024),
			"etcd.v0.9.4 from catalog olm/operatorhubio-catalog is not allowed by OperatorPolicy policies/etcd " +
				"(bundle/catalog): allowed is catalog olm/other; etcd.v0.9.4 is not allowed by OperatorPolicy policies/etcd (bundle/version): allowed is etcd.v0.9.2"},
		"not wanted": {allowed.Note(1024),
			"grafana.v1.0.0 is held: no policy governs package grafana, and nothing that is allowed requires it"},
		"approved by the loop": {allowed.Verdict.ApprovalNote("", 1024),
			"etcd.v0.9.2 is allowed by OperatorPolicy policies/etcd; " +
				"vault.v1.0.0 is required by etcd.v0.9.2; grafana.v1.0.0 is refused by no policy"},
		"approved with consent": {consented.ApprovalNote("alice", 1024),
			`by user "alice"; consent to etcd.v0.9.4 sha256:1f by annotation opgate.io/consent of user "alice" ` +
				`for OperatorPolicy policies/etcd (bundle/consent); etcd.v0.9.4 is allowed by OperatorPolicy policies/etcd`},
		"overridden": {overridden.OverrideNote("alice", 1024),
			`by user "alice": overridden with reason "security fix" (plan/override): ` +
				"etcd.v0.9.4 is not allowed by OperatorPolicy policies/etcd (bundle/version): allowed is etcd.v0.9.2"},
		"not overridden":       {denied.Verdict.OverrideNote("alice", 1024), ""},
		"allowed without":      {allowed.Verdict.OverrideNote("alice", 1024), ""},
		"of the policy":        {denied.Verdict.Policy().String(), "OperatorPolicy policies/etcd"},
		"of the policy, later": {overridden.Policy().String(), "OperatorPolicy policies/etcd"},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, c.got, c.want)
		}
	}
}

// TestAttackNotesAreBounded: whatever others write, a note fits, and has the rules and what would be accepted first.
func TestAttackNotesAreBounded(t *testing.T) {
	const most = 1024
	long := strings.Repeat("\x1b[31mé", 100_000)
	reason := func(id verdict.RuleID, what, accepted string) verdict.Reason {
		return verdict.Reason{Rule: id, Decision: verdict.Deny, Message: verdict.Sentence(what, id, accepted)}
	}
	many := make([]verdict.Reason, 10_000)
	for i := range many {
		many[i] = reason(bundle.RuleVersion, fmt.Sprintf("csv-%d is not allowed", i), "allowed is etcd.v0.9.2")
	}
	for name, c := range map[string]struct {
		reasons []verdict.Reason
		want    []string
	}{
		"what is wrong": {[]verdict.Reason{reason(bundle.RuleVersion, long, "allowed is etcd.v0.9.2")},
			[]string{" (bundle/version): allowed is etcd.v0.9.2"}},
		"what is accepted": {[]verdict.Reason{reason(bundle.RuleConsent, "etcd is held",
			"accept sha256:1f; it changes "+long)},
			[]string{"etcd is held (bundle/consent): accept sha256:1f; it changes"}},
		"both, twice": {[]verdict.Reason{reason(bundle.RuleVersion, long, "allowed is etcd.v0.9.2, "+long),
			reason("bundle/channel", long, long)},
			[]string{" (bundle/version): allowed is etcd.v0.9.2", "; and 1 more (bundle/channel)"}},
		"many": {many, []string{"csv-0 is not allowed (bundle/version): allowed is etcd.v0.9.2; csv-1",
			" more (bundle/version)"}},
		"without its rule": {[]verdict.Reason{{Rule: bundle.RuleVersion, Message: long}}, nil},
		"grows when escaped": {[]verdict.Reason{reason(bundle.RuleVersion, strings.Repeat("\u202e", 300),
			"allowed is etcd.v0.9.2")}, []string{" (bundle/version): allowed is etcd.v0.9.2"}},
		"none": {nil, nil},
	} {
		v := verdict.Verdict{Reasons: c.reasons}
		note := v.Note(most)
		if len(note) > most || !utf8.ValidString(note) || text.Truncate(note, most) != note {
			t.Errorf("%s: %d bytes: %q", name, len(note), note)
		}
		for _, want := range c.want {
			if !strings.Contains(note, want) {
				t.Errorf("%s: %q is not in %q", name, want, note)
			}
		}
	}
}
