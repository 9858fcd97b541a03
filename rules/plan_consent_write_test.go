package rules

import (
	"fmt"
	"strings"
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// annotate returns an update of a plan that sets what users consent to.
func annotate(from *olm.InstallPlan, consent, by string, approve bool) PlanUpdateInput {
	head := &olm.InstallPlanHead{Metadata: from.Metadata, Spec: from.Spec}
	head.Metadata.Annotations.Consent, head.Metadata.Annotations.ConsentBy, head.Spec.Approved = consent, by,
		approve || from.Spec.Approved
	return PlanUpdateInput{New: head, Old: from, User: "alice"}
}

func TestWritingConsent(t *testing.T) {
	digest := etcdChange(nil).Digest()
	other := "sha256:" + strings.Repeat("0", 64)
	var many []string
	for i := range operatorpolicy.MaxDigests + 1 {
		many = append(many, fmt.Sprintf("sha256:%064x", i))
	}
	planned := func(consent, by string) *olm.InstallPlan {
		p := consentedPlan(consent)
		p.Metadata.Annotations.ConsentBy = by
		return p
	}
	reviewed := policyFor("etcd", reviewing(holdPermissions))
	for _, c := range []struct {
		name        string
		old         *olm.InstallPlan // default: without annotations
		consent, by string
		approve     bool
		without     bool // the right
		policy      *operatorpolicy.Policy
		asked       bool
		want        verdict.Decision
		rule        verdict.RuleID
		says        string
	}{
		{name: "consent alone", consent: digest, asked: true},
		{name: "consent in the own name", consent: digest, by: "alice", asked: true},
		{name: "consent and approval at once", consent: digest, approve: true, asked: true},
		{name: "approval of what was consented to", old: planned(digest, "bob"), consent: digest, by: "bob",
			approve: true},
		{name: "approval without consent", approve: true, want: verdict.Hold, rule: bundle.RuleConsent,
			says: "accept " + digest},
		{name: "approval with consent to something else", consent: other, approve: true, asked: true,
			want: verdict.Hold,
			rule: bundle.RuleConsent},
		{name: "several digests", consent: digest + ", " + other, approve: true, asked: true},
		{name: "without the right", consent: digest, asked: true, without: true, want: verdict.Deny,
			rule: RulePlanConsentRight,
			says: "annotation opgate.io/consent is not allowed (plan/consent-right): it needs the verb approve on operatorpolicies etcd in namespace policies"},
		{name: "consent and approval at once, without the right", consent: digest, approve: true, asked: true,
			without: true, want: verdict.Deny, rule: RulePlanConsentRight},
		{name: "another digest, without the right", old: planned(other, "bob"), consent: digest, by: "bob", asked: true,
			without: true,
			want:    verdict.Deny, rule: RulePlanConsentRight},
		{name: "another digest in the name of someone else", old: planned(other, "bob"), consent: digest, by: "bob",
			asked: true,
			want:  verdict.Deny, rule: RulePlanConsentRight,
			says: `annotation opgate.io/consent-by names "bob" (plan/consent-right): allowed is the name of the user who consents, "alice"`},
		{name: "the name of someone else", old: planned(digest, ""), consent: digest, by: "bob", asked: true,
			want: verdict.Deny, rule: RulePlanConsentRight},
		{name: "the own name on consent of someone else, without the right", old: planned(digest, "bob"),
			consent: digest, by: "alice", asked: true, without: true,
			want: verdict.Deny, rule: RulePlanConsentRight},
		{name: "withdrawn", old: planned(digest, "bob"), without: true},
		{name: "one of several withdrawn", old: planned(digest+","+other, "bob"), consent: other, by: "bob",
			without: true},
		{name: "withdrawn and approved at once", old: planned(digest, "bob"), approve: true, without: true,
			want: verdict.Hold, rule: bundle.RuleConsent},
		{name: "the name withdrawn", old: planned(digest, "bob"), consent: digest, without: true},
		{name: "other white space", old: planned(digest+","+other, ""), consent: other + " ,\n" + digest,
			without: true},
		{name: "no digest", consent: "yes", asked: true, want: verdict.Deny, rule: RulePlanConsentRight,
			says: `annotation opgate.io/consent is not a list of digests (plan/consent-right): "yes" is not a digest; write it as the refusal does`},
		{name: "upper case", consent: strings.ToUpper(digest), asked: true, want: verdict.Deny,
			rule: RulePlanConsentRight,
			says: "another algorithm than sha256"},
		{name: "another algorithm", consent: "sha512" + digest[6:], asked: true, want: verdict.Deny,
			rule: RulePlanConsentRight, says: "another algorithm than sha256"},
		{name: "an empty item", consent: digest + ",", asked: true, want: verdict.Deny, rule: RulePlanConsentRight,
			says: `"" is not a digest`},
		{name: "not ASCII", consent: "sha256:\uff10" + digest[8:], asked: true, want: verdict.Deny,
			rule: RulePlanConsentRight, says: "U+FF10"},
		{name: "too many", consent: strings.Join(many, ","), asked: true, want: verdict.Deny,
			rule: RulePlanConsentRight,
			says: "65 digests, at most 64"},
		{name: "256 KiB", consent: strings.Repeat(" ", 256<<10), asked: true, want: verdict.Deny,
			rule: RulePlanConsentRight, says: "262144 bytes, at most 5120"},
		{name: "what is malformed already stays", old: planned("yes", ""), consent: "yes", without: true},
		{name: "a policy without consent", policy: policyFor("etcd", nil), consent: digest, asked: true,
			want: verdict.Deny,
			rule: RulePlanConsentRight,
			says: "is not allowed here (plan/consent-right): no OperatorPolicy with spec.consent governs a package of the plan"},
		{name: "the policy of another package", policy: policyFor("vault", reviewing(holdPermissions)), consent: digest,
			asked: true, want: verdict.Deny, rule: RulePlanConsentRight},
		{name: "a policy that informs", consent: digest, by: "alice", asked: true,
			policy: policyFor("etcd", func(s *spec) {
				reviewing(holdPermissions)(s)
				s.RemediationAction = policyv1beta2.Inform
			})},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := c.old
			if old == nil {
				old = pendingPlan("etcd 0.9.2")
			}
			policy := c.policy
			if policy == nil {
				policy = reviewed
			}
			in := annotate(old, c.consent, c.by, c.approve)
			in.Namespace = carrier.Read(state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{policy},
				CSVs:  etcdInstalled(),
				Plans: []*olm.InstallPlan{old}}), nil, reading(nil, etcdChange(nil)))
			if c.without {
				in.ConsentRefused = "it needs the verb approve on operatorpolicies etcd in namespace policies"
			}
			if got := in.ConsentAsked(); got != c.asked {
				t.Errorf("consent asked is %v", got)
			}
			v := JudgePlanUpdate(in)
			if v.Decision != c.want {
				t.Fatalf("%s, want %s: %s", v.Decision, c.want, v.Refusal())
			}
			if c.rule != "" && v.Reasons[0].Rule != c.rule {
				t.Errorf("by rule %s, want %s", v.Reasons[0].Rule, c.rule)
			}
			if !strings.Contains(v.Refusal(), c.says) {
				t.Errorf("%s\ndoes not say %s", v.Refusal(), c.says)
			}
		})
	}
}

// TestConsentIsNotPlanted: a plan that is created with consent, or gets it where no policy asks for it, would pass once
// a policy does.
func TestConsentIsNotPlanted(t *testing.T) {
	digest := etcdChange(nil).Digest()
	for name, ns := range map[string]*state.Namespace{
		"a namespace without policies": nil,
		"a governed namespace": state.NewNamespace("shop",
			state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))}}),
	} {
		plan := consentedPlan(digest)
		create := JudgePlanCreate(PlanCreateInput{New: &olm.InstallPlanHead{Metadata: plan.Metadata, Spec: plan.Spec},
			Namespace: ns})
		if create.Decision != verdict.Deny || !strings.Contains(create.Refusal(), string(RulePlanConsentRight)) {
			t.Errorf("%s: created: %s %s", name, create.Decision, create.Refusal())
		}
	}
	in := annotate(pendingPlan("etcd 0.9.2"), digest, "", false)
	if v := JudgePlanUpdate(in); v.Decision != verdict.Deny || v.Reasons[0].Rule != RulePlanConsentRight {
		t.Errorf("annotated: %s %s", v.Decision, v.Refusal())
	}
}

// TestConsentNeedsEveryPolicy: who may approve one operator of a plan may not consent for another one.
func TestConsentNeedsEveryPolicy(t *testing.T) {
	old := pendingPlan("etcd 0.9.2", "vault 0.1.9", "prometheus 0.55.0")
	in := annotate(old, etcdChange(nil).Digest(), "", false)
	in.Namespace = state.NewNamespace("shop", state.NamespaceContents{Plans: []*olm.InstallPlan{old}, Policies: []*operatorpolicy.Policy{
		policyFor("etcd", reviewing(holdPermissions)), policyFor("vault", reviewing(policyv1beta2.Consent{})),
		policyFor("prometheus", nil)}})
	var got []string
	for _, ref := range in.ConsentNeeds() {
		got = append(got, ref.String())
	}
	if want := "OperatorPolicy policies/etcd, OperatorPolicy policies/vault"; strings.Join(got, ", ") != want {
		t.Errorf("needs the right on %v, want %s", got, want)
	}
}
