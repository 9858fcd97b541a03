package rules

import (
	"strings"
	"testing"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// TestContentsAreThoseReviewed: what OLM writes for an approved plan is what a user has consented to. The plan is for
// an image, of which OLM reads the contents from a ConfigMap.
func TestContentsAreThoseReviewed(t *testing.T) {
	read := func(edit func(*change.Set)) *change.Set {
		return etcdChange(func(s *change.Set) {
			s.Spec = written(t, etcdSpec).Spec.ContentsDigest()
			if edit != nil {
				edit(s)
			}
		})
	}
	digest := read(nil).Digest()
	accepting := reviewing(policyv1beta2.Consent{Permissions: policyv1beta2.ConsentHold, Accepted: []string{digest}})
	overridden := func(p *olm.InstallPlan) { p.Metadata.Annotations.OverrideReason = "ticket 77" }
	for _, c := range []struct {
		name    string
		policy  func(*spec)
		plan    []func(*olm.InstallPlan)
		changes state.Changes
		spec    string
		want    verdict.Decision
		rule    verdict.RuleID
		says    string
		warns   string
	}{
		{name: "the same contents", policy: accepting, changes: reading(nil, read(nil)), spec: etcdSpec},
		{name: "other contents", policy: accepting, changes: reading(nil, read(nil)), spec: otherSpec,
			want: verdict.Deny,
			rule: bundle.RuleContents,
			says: "the spec of etcd.v0.9.2 is not allowed by OperatorPolicy policies/etcd (bundle/contents): it is not what was read for InstallPlan install-x7; delete that plan"},
		{name: "other contents of an overridden plan", policy: accepting, plan: []func(*olm.InstallPlan){overridden},
			changes: reading(nil, read(nil)), spec: otherSpec,
			want: verdict.Deny, rule: bundle.RuleContents},
		{name: "an overridden plan that no one reviewed", policy: reviewing(holdPermissions),
			plan: []func(*olm.InstallPlan){overridden}, spec: etcdSpec},
		{name: "other contents where changes only warn",
			policy: reviewing(policyv1beta2.Consent{Accepted: []string{digest}}), changes: reading(nil, read(nil)),
			spec:  otherSpec,
			warns: "which only warns of that (bundle/contents)"},
		{name: "other contents without consent", changes: reading(nil, read(nil)), spec: otherSpec},
		{name: "consent was withdrawn after the approval", policy: reviewing(holdPermissions),
			changes: reading(nil, read(nil)), spec: etcdSpec, want: verdict.Hold, rule: bundle.RuleConsent,
			says: "InstallPlan install-x7, which installs it, was approved all the same"},
		{name: "consent by annotation", policy: reviewing(holdPermissions), changes: reading(nil, read(nil)),
			spec: etcdSpec,
			plan: []func(*olm.InstallPlan){func(p *olm.InstallPlan) { p.Metadata.Annotations.Consent = digest }}},
		{name: "the ConfigMap was replaced", policy: accepting,
			changes: reading(nil, read(func(s *change.Set) { s.Fault = "ConfigMap olm/x was replaced" })),
			spec:    etcdSpec,
			want:    verdict.Hold, rule: bundle.RuleContents, says: "ConfigMap olm/x was replaced"},
		{name: "the contents were never read", policy: accepting, spec: etcdSpec, want: verdict.Hold,
			rule: bundle.RuleContents, says: "its contents are not read yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := carrier.Read(state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", c.policy)},
				CSVs:  etcdInstalled(),
				Plans: []*olm.InstallPlan{installing(t, "", c.plan...)}}), nil, c.changes)
			v := JudgeCSV(CSVInput{New: written(t, c.spec), Namespace: ns, ByOLM: true})
			if v.Decision != c.want {
				t.Fatalf("%s, want %s: %s", v.Decision, c.want, v.Refusal())
			}
			if c.rule != "" && v.Reasons[0].Rule != c.rule {
				t.Errorf("by rule %s, want %s", v.Reasons[0].Rule, c.rule)
			}
			if !strings.Contains(v.Refusal(), c.says) {
				t.Errorf("%s\ndoes not say %s", v.Refusal(), c.says)
			}
			if warned := strings.Join(v.WarningTexts(), "; "); !strings.Contains(warned, c.warns) {
				t.Errorf("%q does not say %s", warned, c.warns)
			}
		})
	}
}

// TestUnreviewedByHand: a ClusterServiceVersion that a user creates has no plan whose changes could be reviewed.
func TestUnreviewedByHand(t *testing.T) {
	for _, c := range []struct {
		name    string
		consent policyv1beta2.Consent
		want    verdict.Decision
	}{
		{name: "changes are held", consent: holdPermissions, want: verdict.Hold},
		{name: "changes are warned of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := policyFor("etcd", func(s *spec) {
				anyCatalog(s)
				reviewing(c.consent)(s)
			})
			ns := state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{policy}})
			v := JudgeCSV(CSVInput{New: written(t, etcdSpec), Namespace: ns, User: "tenant"})
			if said := v.Refusal() + strings.Join(v.WarningTexts(), ""); v.Decision != c.want ||
				!strings.Contains(said, "which no InstallPlan installs") {
				t.Errorf("%s, want %s: %s", v.Decision, c.want, said)
			}
		})
	}
}

// TestConsentIsNoEscape: after an outage it is not known any more what a plan changed that has finished.
func TestConsentIsNoEscape(t *testing.T) {
	plan := installing(t, etcdSpec)
	ns := state.NewNamespace("shop",
		state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))},
			CSVs: etcdInstalled(), Plans: []*olm.InstallPlan{plan}})
	if reasons := RefusedSteps(plan, ns, time.Time{}); len(reasons) != 1 || reasons[0].Decision != verdict.Hold {
		t.Errorf("while it runs: %+v", reasons)
	}
	plan.Status.Phase = olm.PhaseComplete
	if reasons, known := JudgeEscape(written(t, etcdSpec), ns); !known || len(reasons) > 0 {
		t.Errorf("known is %v, %+v", known, reasons)
	}
}
