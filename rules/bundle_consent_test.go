package rules

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// reviewing sets spec.consent of a policy.
func reviewing(c policyv1beta2.Consent) func(*spec) {
	return func(s *spec) { s.Consent = &c }
}

// holdPermissions holds new rights, and warns of everything else.
var holdPermissions = policyv1beta2.Consent{Permissions: policyv1beta2.ConsentHold}

// differences are two of which one is a right.
var differences = []change.Difference{
	{Class: change.Permissions, Risk: change.Risky, Text: "cluster-wide: * on secrets"},
	{Class: change.Images, Text: "registry.example"},
}

// etcdChange is what etcd 0.9.2 changes of etcd 0.9.0; edit changes it further.
func etcdChange(edit func(*change.Set)) *change.Set {
	s := &change.Set{CSV: "etcd.v0.9.2", Package: "etcd", Version: "0.9.2", From: "etcd.v0.9.0", FromVersion: "0.9.0",
		Differences: differences}
	if edit != nil {
		edit(s)
	}
	return s
}

// reading returns change sets for every plan that is asked for, as read for exactly that plan; edit changes the answer.
func reading(edit func(*state.PlanChanges), sets ...*change.Set) state.Changes {
	return func(plan *olm.InstallPlan, replacements []state.Replacement) *state.PlanChanges {
		known := &state.PlanChanges{Plan: plan.ContentsDigest(), Replacements: replacements, ByCSV: map[string]*change.Set{}}
		for _, s := range sets {
			known.ByCSV[s.CSV] = s
		}
		if edit != nil {
			edit(known)
		}
		return known
	}
}

// etcdInstalled is the ClusterServiceVersion that etcdChange replaces.
func etcdInstalled() []state.Installed {
	return []state.Installed{{Bundle: olm.Bundle{Name: "etcd.v0.9.0", Package: "etcd", Version: "0.9.0", Spec: &olm.CSVSpec{}}}}
}

// consentedPlan is a plan whose annotation has a value.
func consentedPlan(value string) *olm.InstallPlan {
	p := pendingPlan("etcd 0.9.2")
	p.Metadata.Annotations.Consent = value
	return p
}

func TestConsent(t *testing.T) {
	digest, other := etcdChange(nil).Digest(), etcdChange(func(s *change.Set) { s.Version = "0.9.3" }).Digest()
	accepting := func(digests ...string) func(*spec) {
		c := holdPermissions
		c.Accepted = digests
		return reviewing(c)
	}
	ignore, warn, hold := policyv1beta2.ConsentIgnore, policyv1beta2.ConsentWarn, policyv1beta2.ConsentHold
	nothing := policyv1beta2.Consent{Permissions: ignore, Webhooks: ignore, BreakingCRDs: ignore, Images: ignore,
		PodSecurity: ignore, Scope: ignore}
	known := reading(nil, etcdChange(nil))
	first := reading(nil, etcdChange(func(s *change.Set) { s.From, s.FromVersion = "", "" }))
	informing := func(s *spec) {
		reviewing(holdPermissions)(s)
		s.RemediationAction = policyv1beta2.Inform
	}
	second := func(edit func(*spec)) *operatorpolicy.Policy {
		op := operatorPolicy("etcd", edit)
		op.Name = "second"
		return NewOperatorPolicy(op)
	}
	for _, c := range []struct {
		name     string
		policies []*operatorpolicy.Policy
		plan     *olm.InstallPlan // default: of etcd 0.9.2
		first    bool             // nothing is installed
		changes  state.Changes
		want     verdict.Decision
		rule     verdict.RuleID
		says     []string // in the refusal, or in the warnings if the plan passes
		silent   bool     // no warning either
		consents string   // of the verdict
	}{
		{
			name: "no consent asked for", policies: []*operatorpolicy.Policy{policyFor("etcd", nil)}, changes: known,
			silent: true,
		},
		{
			name: "a right that is new", policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))},
			changes: known,
			want:    verdict.Hold, rule: bundle.RuleConsent,
			says: []string{"etcd.v0.9.2 is held by OperatorPolicy policies/etcd (bundle/consent): accept " + digest +
				" in spec.consent.accepted, or annotate the plan with opgate.io/consent; it changes permissions: cluster-wide: * on secrets"},
		},
		{
			name: "accepted by the policy", policies: []*operatorpolicy.Policy{policyFor("etcd", accepting(other, digest))},
			changes: known, silent: true,
			consents: "etcd.v0.9.2 " + digest + " by spec.consent.accepted of OperatorPolicy policies/etcd",
		},
		{
			name:     "accepted by the annotation",
			policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))}, changes: known,
			silent:   true,
			plan:     consentedPlan(" " + other + " , " + digest),
			consents: "etcd.v0.9.2 " + digest + " by annotation opgate.io/consent for OperatorPolicy policies/etcd",
		},
		{
			name: "the digest of another version", policies: []*operatorpolicy.Policy{policyFor("etcd", accepting(other))},
			changes: known,
			plan:    consentedPlan(other), want: verdict.Hold, rule: bundle.RuleConsent, says: []string{digest},
		},
		{
			name:     "other contents under the same name",
			policies: []*operatorpolicy.Policy{policyFor("etcd", accepting(digest))},
			changes:  reading(nil, etcdChange(func(s *change.Set) { s.Contents[0] = 1 })), want: verdict.Hold,
			rule: bundle.RuleConsent,
		},
		{
			name:     "an annotation with one digest that is none",
			policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))}, changes: known,
			plan: consentedPlan(digest + ",all"), want: verdict.Hold, rule: bundle.RuleConsent,
		},
		{
			name:     "an annotation in upper case",
			policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))}, changes: known,
			plan: consentedPlan(strings.ToUpper(digest)), want: verdict.Hold, rule: bundle.RuleConsent,
		},
		{
			name:     "an annotation of 256 KiB",
			policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))}, changes: known,
			plan: consentedPlan(strings.Repeat(digest+",", 3600) + digest), want: verdict.Hold, rule: bundle.RuleConsent,
		},
		{
			name:     "a class that only warns",
			policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(policyv1beta2.Consent{}))}, changes: known,
			says: []string{"etcd.v0.9.2 passes with a warning by OperatorPolicy policies/etcd (bundle/consent): to end the warning, accept " + digest,
				"; it changes permissions: cluster-wide: * on secrets; images: registry.example"},
		},
		{
			name: "a warning that is accepted", changes: known, silent: true,
			policies: []*operatorpolicy.Policy{policyFor("etcd",
				reviewing(policyv1beta2.Consent{Accepted: []string{digest}}))},
		},
		{
			name: "one class holds, another is ignored", changes: known, silent: true,
			policies: []*operatorpolicy.Policy{policyFor("etcd",
				reviewing(policyv1beta2.Consent{Permissions: ignore, Images: ignore, Webhooks: hold}))},
		},
		{
			name: "all classes are ignored", policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(nothing))},
			silent: true,
		},
		{
			name: "a policy that informs", policies: []*operatorpolicy.Policy{policyFor("etcd", informing)}, changes: known,
			says: []string{"by OperatorPolicy policies/etcd, which only informs (bundle/consent): accept ",
				"it changes permissions"},
		},
		{
			name: "two policies, one with consent", changes: known, want: verdict.Hold, rule: bundle.RuleConsent,
			says:     []string{"by OperatorPolicy policies/second"},
			policies: []*operatorpolicy.Policy{policyFor("etcd", nil), second(reviewing(holdPermissions))},
		},
		{
			name: "two policies, one accepts", changes: known, want: verdict.Hold, rule: bundle.RuleConsent,
			says:     []string{"by OperatorPolicy policies/second"},
			policies: []*operatorpolicy.Policy{policyFor("etcd", accepting(digest)), second(reviewing(holdPermissions))},
			consents: "etcd.v0.9.2 " + digest + " by spec.consent.accepted of OperatorPolicy policies/etcd",
		},
		{
			name:     "the contents are not read yet",
			policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))},
			changes:  func(*olm.InstallPlan, []state.Replacement) *state.PlanChanges { return nil }, want: verdict.Hold,
			rule: bundle.RuleContents,
			says: []string{"etcd.v0.9.2, whose changes are not known, is held by OperatorPolicy policies/etcd (bundle/contents): its contents are not read yet; waits"},
		},
		{
			name: "no one reads contents", policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))},
			want: verdict.Hold, rule: bundle.RuleContents,
		},
		{
			name: "the contents cannot be read", policies: []*operatorpolicy.Policy{policyFor("etcd", accepting(digest))},
			plan:    consentedPlan(digest),
			changes: reading(nil, etcdChange(func(s *change.Set) { s.Fault = "no such ConfigMap\n\u202e" })),
			want:    verdict.Hold, rule: bundle.RuleContents,
			says: []string{`its contents are not known: no such ConfigMap\n\u202e; waits`},
		},
		{
			name: "what was read is another plan", policies: []*operatorpolicy.Policy{policyFor("etcd", accepting(digest))},
			changes: reading(func(c *state.PlanChanges) { c.Plan[0] ^= 1 }, etcdChange(nil)), want: verdict.Hold,
			rule: bundle.RuleContents,
			says: []string{"not those of this InstallPlan"},
		},
		{
			name: "what was read is another version", policies: []*operatorpolicy.Policy{policyFor("etcd", accepting(digest))},
			changes: reading(nil, etcdChange(func(s *change.Set) { s.CSV = "etcd.v0.9.3" })), want: verdict.Hold,
			rule: bundle.RuleContents,
		},
		{
			name:     "compared with another version than the installed one",
			policies: []*operatorpolicy.Policy{policyFor("etcd", accepting(digest))},
			changes:  reading(nil, etcdChange(func(s *change.Set) { s.From = "etcd.v0.8.0" })), want: verdict.Hold,
			rule: bundle.RuleContents,
			says: []string{"not compared with what is installed now"},
		},
		{
			name:     "compared with other installed contents",
			policies: []*operatorpolicy.Policy{policyFor("etcd", accepting(digest))},
			changes:  reading(func(c *state.PlanChanges) { c.Replacements[0].FromDigest[0] ^= 1 }, etcdChange(nil)),
			want:     verdict.Hold, rule: bundle.RuleContents,
			says: []string{"not compared with what is installed now"},
		},
		{
			name:     "unknown contents where changes only warn",
			policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(policyv1beta2.Consent{}))},
			says:     []string{"passes with a warning by OperatorPolicy policies/etcd (bundle/contents): its contents are not read yet"},
		},
		{
			name: "a first installation", policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))},
			first: true, silent: true,
		},
		{
			name: "a first installation that is reviewed", first: true, changes: first, want: verdict.Hold,
			rule:     bundle.RuleConsent,
			policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(policyv1beta2.Consent{FirstInstall: hold}))},
			says:     []string{"its first installation adds permissions: cluster-wide: * on secrets; images: registry.example"},
		},
		{
			name: "a first installation that is warned of", first: true, changes: first,
			policies: []*operatorpolicy.Policy{policyFor("etcd",
				reviewing(policyv1beta2.Consent{Permissions: hold, FirstInstall: warn}))},
			says: []string{"passes with a warning by OperatorPolicy policies/etcd (bundle/consent): to end the warning, accept ", "; its first installation adds permissions"},
		},
		{
			name: "a first installation does not review what is ignored", first: true, changes: first,
			want: verdict.Hold,
			rule: bundle.RuleConsent,
			policies: []*operatorpolicy.Policy{policyFor("etcd",
				reviewing(policyv1beta2.Consent{Permissions: ignore, FirstInstall: hold}))},
			says: []string{"adds images: registry.example"},
		},
		{
			name:     "a change set of a first installation for an upgrade",
			policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))}, changes: first,
			want: verdict.Hold, rule: bundle.RuleContents,
		},
		{
			name: "no difference", policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))},
			silent:  true,
			changes: reading(nil, etcdChange(func(s *change.Set) { s.Differences = nil })),
		},
		{
			name:     "new definitions need no consent",
			policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))}, silent: true,
			changes: reading(nil, etcdChange(func(s *change.Set) {
				s.Differences = []change.Difference{{Class: change.Definitions, Text: "etcdclusters"}}
			})),
		},
		{
			name:     "an action that is none",
			policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(policyv1beta2.Consent{Permissions: "hold"}))},
			changes:  known,
			want:     verdict.Hold, rule: bundle.RulePolicyUnreadable, says: []string{"spec.consent.permissions is not valid"},
		},
		{
			name: "a digest that is none", policies: []*operatorpolicy.Policy{policyFor("etcd", accepting(digest, "all"))},
			changes: known,
			want:    verdict.Hold, rule: bundle.RulePolicyUnreadable, says: []string{"spec.consent.accepted[1] is not valid"},
		},
		{
			name: "a policy that forbids it anyway", changes: known, silent: true,
			policies: []*operatorpolicy.Policy{policyFor("etcd", func(s *spec) {
				reviewing(holdPermissions)(s)
				s.ComplianceType, s.Versions = policyv1beta2.MustNotHave, []string{"etcd.v0.9.4"}
			})},
		},
		{
			name:     "a differing text that breaks lines",
			policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))}, want: verdict.Hold,
			rule: bundle.RuleConsent,
			changes: reading(nil, etcdChange(func(s *change.Set) {
				s.Differences = []change.Difference{{Class: change.Permissions, Text: "get on größe\u202e\x1b[2J"}}
			})),
			says: []string{`get on größe\u202e [2J`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := c.plan
			if plan == nil {
				plan = pendingPlan("etcd 0.9.2")
			}
			contents := state.NamespaceContents{Policies: c.policies, Plans: []*olm.InstallPlan{plan}}
			if !c.first {
				contents.CSVs = etcdInstalled()
			}
			v := JudgePlan(PlanInput{Plan: plan, Namespace: carrier.Read(state.NewNamespace("shop", contents), nil, c.changes)})
			if v.Decision != c.want {
				t.Fatalf("%s, want %s: %s", v.Decision, c.want, v.Refusal())
			}
			if c.rule != "" && v.Reasons[0].Rule != c.rule {
				t.Errorf("by rule %s, want %s", v.Reasons[0].Rule, c.rule)
			}
			said := v.Refusal()
			if c.want == verdict.Allow {
				said = strings.Join(v.WarningTexts(), "; ")
			}
			for _, text := range c.says {
				if !strings.Contains(said, text) {
					t.Errorf("%s\ndoes not say %s", said, text)
				}
			}
			if c.silent && len(v.Warnings) > 0 {
				t.Errorf("warns: %v", v.WarningTexts())
			}
			var consents []string
			for _, consent := range v.Consents {
				consents = append(consents, consent.String())
			}
			if got := strings.Join(consents, "; "); got != c.consents {
				t.Errorf("consents are %q, want %q", got, c.consents)
			}
		})
	}
}

// TestChangesAreReadOnce: what no policy reviews is not asked for, and neither is a finished plan.
func TestChangesAreReadOnce(t *testing.T) {
	complete := pendingPlan("etcd 0.9.4")
	complete.Metadata.Name, complete.Status.Phase = "complete", olm.PhaseComplete
	elsewhere := pendingPlan("vault 0.1.9")
	elsewhere.Metadata.Name = "elsewhere"
	for _, c := range []struct {
		name     string
		policies []*operatorpolicy.Policy
		want     string
	}{
		{name: "no policy reviews changes", policies: []*operatorpolicy.Policy{policyFor("etcd", nil)}},
		{name: "a policy ignores them", policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(policyv1beta2.Consent{
			Permissions: "Ignore", Webhooks: "Ignore", BreakingCRDs: "Ignore", Images: "Ignore", PodSecurity: "Ignore",
			Scope: "Ignore"}))}},
		{name: "a policy holds", policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))},
			want: "install-x7: etcd.v0.9.2 etcd 0.9.2 for etcd.v0.9.0 0.9.0 in stable from olm/operatorhubio-catalog"},
		{name: "a policy warns", policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(policyv1beta2.Consent{}))},
			want: "install-x7: etcd.v0.9.2 etcd 0.9.2 for etcd.v0.9.0 0.9.0 in stable from olm/operatorhubio-catalog"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked []string
			contents := state.NamespaceContents{Policies: c.policies, CSVs: etcdInstalled(),
				Subscriptions: inChannel("stable"),
				Plans:         []*olm.InstallPlan{complete, elsewhere, pendingPlan("etcd 0.9.2")}}
			changes := func(plan *olm.InstallPlan, replacements []state.Replacement) *state.PlanChanges {
				for _, r := range replacements {
					asked = append(asked, plan.Metadata.Name+": "+r.CSV+" "+r.Package+" "+r.Version+" for "+r.From+" "+
						r.FromVersion+
						" in "+r.Channel+" from "+r.Catalog.Namespace+"/"+r.Catalog.Name)
				}
				return nil
			}
			carrier.Read(state.NewNamespace("shop", contents), nil, changes)
			if got := strings.Join(asked, "; "); got != c.want {
				t.Errorf("asked for %q, want %q", got, c.want)
			}
		})
	}
}

// TestAnotherPlanOfTheName: what was read for a plan does not count for the next one of that name.
func TestAnotherPlanOfTheName(t *testing.T) {
	stored := pendingPlan("etcd 0.9.2")
	stored.Metadata.UID = "first"
	policy := policyFor("etcd",
		reviewing(policyv1beta2.Consent{Permissions: policyv1beta2.ConsentHold,
			Accepted: []string{etcdChange(nil).Digest()}}))
	ns := carrier.Read(state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{policy}, CSVs: etcdInstalled(),
		Plans: []*olm.InstallPlan{stored}}), nil, reading(nil, etcdChange(nil)))
	if v := JudgePlan(PlanInput{Plan: stored, Namespace: ns}); v.Decision != verdict.Allow {
		t.Errorf("the plan: %s", v.Refusal())
	}
	next := *stored
	next.Metadata.UID = "second"
	if v := JudgePlan(PlanInput{Plan: &next, Namespace: ns}); v.Decision != verdict.Hold ||
		v.Reasons[0].Rule != bundle.RuleContents {
		t.Errorf("the next plan: %s %s", v.Decision, v.Refusal())
	}
	image := *stored
	image.Status.BundleLookups = []olm.BundleLookup{stored.Status.BundleLookups[0]}
	image.Status.BundleLookups[0].Path = "registry.example/evil"
	if v := JudgePlan(PlanInput{Plan: &image, Namespace: ns}); v.Decision != verdict.Hold ||
		v.Reasons[0].Rule != bundle.RuleContents {
		t.Errorf("with another image: %s %s", v.Decision, v.Refusal())
	}
}

// TestConsentWithdrawn: a line that is removed from git before the approval consents to nothing.
func TestConsentWithdrawn(t *testing.T) {
	accepting := policyFor("etcd",
		reviewing(policyv1beta2.Consent{Permissions: policyv1beta2.ConsentHold,
			Accepted: []string{etcdChange(nil).Digest()}}))
	plan := pendingPlan("etcd 0.9.2")
	ns := carrier.Read(state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{accepting}, CSVs: etcdInstalled(),
		Plans: []*olm.InstallPlan{plan}}), nil, reading(nil, etcdChange(nil)))
	if v := JudgePlan(PlanInput{Plan: plan, Namespace: ns}); v.Decision != verdict.Allow {
		t.Fatalf("with the line: %s", v.Refusal())
	}
	ns = ns.WithPolicy(policyFor("etcd", reviewing(holdPermissions)))
	if v := JudgePlan(PlanInput{Plan: plan, Namespace: ns}); v.Decision != verdict.Hold ||
		v.Reasons[0].Rule != bundle.RuleConsent {
		t.Errorf("without the line: %s %s", v.Decision, v.Refusal())
	}
}

// TestConsentDocument: the policy in docs/consent.md is valid.
func TestConsentDocument(t *testing.T) {
	document, err := os.ReadFile("../docs/consent.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(document), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	raw, err := yaml.YAMLToJSON([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	op, strict, err := DecodeOperatorPolicy(raw)
	if err != nil || len(strict) > 0 {
		t.Fatal(err, strict)
	}
	p := NewOperatorPolicy(op)
	if v := JudgeOperatorPolicy(OperatorPolicyInput{Policy: p,
		Namespace: func(string) *state.Namespace { return nil }}); v.Decision != verdict.Allow || len(v.Warnings) > 0 {
		t.Errorf("%s %v", v.Refusal(), v.WarningTexts())
	}
	if len(p.Consent.Accepted) != 1 || !p.Consent.Holds() {
		t.Errorf("the example reads as %+v", p.Consent)
	}
}

// TestConsentIsApprovedByHand: OLM must not approve before a change is reviewed.
func TestConsentIsApprovedByHand(t *testing.T) {
	ignore := policyv1beta2.ConsentIgnore
	for _, c := range []struct {
		name    string
		consent policyv1beta2.Consent
		want    string
	}{
		{name: "a class holds", consent: holdPermissions, want: olm.ApprovalManual},
		{name: "first installations are held", consent: policyv1beta2.Consent{FirstInstall: policyv1beta2.ConsentHold},
			want: olm.ApprovalManual},
		{name: "all only warn", want: olm.ApprovalAutomatic},
		{name: "first installations of nothing are held", want: olm.ApprovalAutomatic,
			consent: policyv1beta2.Consent{FirstInstall: policyv1beta2.ConsentHold,
				Permissions: ignore, Webhooks: ignore, BreakingCRDs: ignore, Images: ignore, PodSecurity: ignore,
				Scope: ignore}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if mode, because := (*state.Namespace)(nil).Approval(policyFor("etcd",
				reviewing(c.consent))); mode != c.want {
				t.Errorf("%s, %s", mode, because)
			}
		})
	}
	named := policyFor("etcd", func(s *spec) {
		reviewing(holdPermissions)(s)
		anyCatalog(s)
		s.Versions = []string{"etcd.v0.9.2"}
	})
	if named.PassesByName("etcd.v0.9.2") {
		t.Error("a plan that is approved from the start passes")
	}
}
