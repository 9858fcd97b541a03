package rules

import (
	"fmt"
	"strings"
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
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
		"denied": {denied.Note(),
			"etcd.v0.9.4 is not allowed by OperatorPolicy policies/etcd (bundle/version): allowed is etcd.v0.9.2"},
		"two reasons": {judge(pendingPlan("etcd 0.9.4"), etcd, channel).Note(),
			"etcd.v0.9.4 from catalog olm/operatorhubio-catalog is not allowed by OperatorPolicy policies/etcd " +
				"(bundle/catalog): allowed is catalog olm/other; etcd.v0.9.4 is not allowed by OperatorPolicy policies/etcd (bundle/version): allowed is etcd.v0.9.2"},
		"not wanted": {allowed.Note(),
			"grafana.v1.0.0 is held: no policy governs package grafana, and nothing that is allowed requires it"},
		"approved by the loop": {allowed.Verdict.ApprovalNote(""),
			"etcd.v0.9.2 is allowed by OperatorPolicy policies/etcd; " +
				"vault.v1.0.0 is required by etcd.v0.9.2; grafana.v1.0.0 is refused by no policy"},
		"approved with consent": {consented.ApprovalNote("alice"),
			`by user "alice"; consent to etcd.v0.9.4 sha256:1f by annotation opgate.io/consent of user "alice" ` +
				`for OperatorPolicy policies/etcd (bundle/consent); etcd.v0.9.4 is allowed by OperatorPolicy policies/etcd`},
		"overridden": {overridden.OverrideNote("alice"),
			`by user "alice": overridden with reason "security fix" (plan/override): ` +
				"etcd.v0.9.4 is not allowed by OperatorPolicy policies/etcd (bundle/version): allowed is etcd.v0.9.2"},
		"not overridden":       {denied.Verdict.OverrideNote("alice"), ""},
		"allowed without":      {allowed.Verdict.OverrideNote("alice"), ""},
		"of the policy":        {denied.Verdict.Policy().String(), "OperatorPolicy policies/etcd"},
		"of the policy, later": {overridden.Policy().String(), "OperatorPolicy policies/etcd"},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, c.got, c.want)
		}
	}
}

// TestAttackManyReasons: of any number of reasons a note has the first, and counts the others.
func TestAttackManyReasons(t *testing.T) {
	many := make([]verdict.Reason, 10_000)
	for i := range many {
		many[i] = verdict.Reason{Rule: bundle.RuleVersion, Decision: verdict.Deny,
			Message: fmt.Sprintf("csv-%d is not allowed (bundle/version): allowed is etcd.v0.9.2", i)}
	}
	v := verdict.Verdict{Object: "installplan shop/install-x7", Reasons: many}
	for _, got := range []string{v.Note(), v.Refusal()} {
		if !strings.Contains(got, many[0].Message+"; "+many[1].Message) || !strings.HasSuffix(got, "; and 9980 more") {
			t.Errorf("got %q", got)
		}
	}
}
