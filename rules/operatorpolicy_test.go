package rules

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

func anyJSON(s string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(s)} }

// group sets the OperatorGroup of a policy.
func group(g policyv1beta2.OperatorGroupTemplate) func(*policyv1beta2.OperatorPolicySpec) {
	return func(s *policyv1beta2.OperatorPolicySpec) { s.OperatorGroup = &g }
}

// consentTo accepts digests.
func consentTo(digits ...string) func(*policyv1beta2.OperatorPolicySpec) {
	c := policyv1beta2.Consent{Permissions: policyv1beta2.ConsentHold}
	for _, d := range digits {
		c.Accepted = append(c.Accepted, "sha256:"+d)
	}
	return reviewing(c)
}

// TestValidatePolicy checks what is refused and with which path. It does not repeat the scenarios.
func TestValidatePolicy(t *testing.T) {
	type spec = policyv1beta2.OperatorPolicySpec
	for name, c := range map[string]struct {
		edit func(*spec)
		want string // in the errors; empty: valid
	}{
		"the least": {nil, ""},
		"no package": {func(s *spec) { s.Subscription.Name = "" },
			"spec.subscription.name: Required"},
		"no namespace": {func(s *spec) { s.Subscription.Namespace = "" }, ""},
		"a package with a dot": {func(s *spec) { s.Subscription.Name = "a.b" },
			"spec.subscription.name"},
		"a package of 64 characters": {func(s *spec) { s.Subscription.Name = strings.Repeat("a", 64) },
			"spec.subscription.name"},
		"8.3 a source that is no name": {func(s *spec) { s.Subscription.Source = "fakeName" }, ""},
		"a source with a blank": {func(s *spec) { s.Subscription.Source = "community " },
			"spec.subscription.source"},
		"a source of 254 characters": {func(s *spec) { s.Subscription.Source = strings.Repeat("a", 254) },
			"spec.subscription.source"},
		"a sourceNamespace in Cyrillic": {func(s *spec) { s.Subscription.SourceNamespace = "\u0441lm" }, "must be ASCII"},
		"a channel with a blank": {func(s *spec) { s.Subscription.Channel = "stable " },
			"spec.subscription.channel"},
		"a startingCSV with a slash": {func(s *spec) { s.Subscription.StartingCSV = "a/b" },
			"spec.subscription.startingCSV"},
		"complianceType in capitals": {func(s *spec) { s.ComplianceType = "MustHave" }, "spec.complianceType"},
		"no complianceType": {func(s *spec) { s.ComplianceType = "" },
			"spec.complianceType: Required"},
		"no upgradeApproval": {func(s *spec) { s.UpgradeApproval = "" },
			"spec.upgradeApproval: Required"},
		"upgradeApproval Manual": {func(s *spec) { s.UpgradeApproval = "Manual" }, "spec.upgradeApproval"},
		"planApproval":           {func(s *spec) { s.PlanApproval = policyv1beta2.PlanApprovalIfAllowed }, ""},
		"planApproval of a policy that informs": {func(s *spec) {
			s.PlanApproval, s.RemediationAction = policyv1beta2.PlanApprovalIfAllowed, policyv1beta2.Inform
		}, "spec.planApproval: Forbidden: a policy that informs approves no plan: remove planApproval, or write remediationAction enforce"},
		"planApproval of a mustnothave policy": {func(s *spec) {
			s.PlanApproval, s.ComplianceType = policyv1beta2.PlanApprovalIfRequested, policyv1beta2.MustNotHave
		}, "spec.planApproval: Forbidden: a mustnothave policy approves no plan: remove planApproval, or write complianceType musthave or mayhave"},
		"upgradeApproval Never": {func(s *spec) { s.UpgradeApproval = policyv1beta2.UpgradeApprovalNever }, ""},
		"remediationAction ENFORCE": {func(s *spec) { s.RemediationAction = "ENFORCE" },
			"spec.remediationAction"},
		"severity of any case":              {func(s *spec) { s.Severity = "Critical" }, ""},
		"severity unknown":                  {func(s *spec) { s.Severity = "bad" }, "spec.severity"},
		"versions that are all blank":       {versions("", " , "), "spec.versions: Invalid"},
		"versions with a blank among them":  {versions("etcd.v1.0.0", " "), ""},
		"a version with a plus":             {versions("etcd.v1.0.0+build"), "spec.versions[0]"},
		"a version in a comma list":         {versions("etcd.v1.0.0", "ok.v1, Not_OK"), "spec.versions[1]"},
		"a version with full-width digits":  {versions("etcd.v\uff11.0.0"), "U+FF11"},
		"a version with a zero-width blank": {versions("etcd.v1\u200b.0.0"), "U+200B"},
		"a version with a digest":           {versions("etcd.v1.0.0@sha256:" + strings.Repeat("a", 64)), ""},
		"a version with half a digest": {versions("etcd.v1.0.0@sha256:" + strings.Repeat("a", 63)),
			"spec.versions[0]"},
		"a digest in capitals": {versions("etcd.v1.0.0@sha256:" + strings.Repeat("A", 64)),
			"spec.versions[0]"},
		"a digest of another kind": {versions("etcd.v1.0.0@sha512:" + strings.Repeat("a", 128)),
			"spec.versions[0]"},
		"a digest with look-alikes": {versions("etcd.v1.0.0@sha256:" + strings.Repeat("\u0430", 32)),
			"spec.versions[0]"},
		"a digest of nothing": {versions("@sha256:" + strings.Repeat("a", 64)), "spec.versions[0]"},
		"an image with a digest": {versions("quay.io/example/etcd@sha256:" + strings.Repeat("a", 64)),
			"spec.versions[0]"},
		"a name with two digests": {versions("etcd.v1@sha256:" + strings.Repeat("a", 64) + "@sha256:" +
			strings.Repeat("a", 64)), "spec.versions[0]"},
		"an empty digest":            {versions("etcd.v1.0.0@"), "spec.versions[0]"},
		"template text":              {versions("{{ fromConfigMap \"a\" \"b\" \"c\" }}"), ""},
		"a range with template text": {func(s *spec) { s.VersionRange = "{{ .x }}" }, ""},
		"a range that is half open":  {func(s *spec) { s.VersionRange = ">=1.0.0 <" }, "spec.versionRange"},
		"config that is a list": {func(s *spec) { s.Subscription.Config = anyJSON(`[]`) },
			"spec.subscription.config"},
		"config with an unknown field": {func(s *spec) {
			s.Subscription.Config = anyJSON(
				`{"nodeSelectors":{}}`)
		}, `unknown field "nodeSelectors"`},
		"config as template text": {func(s *spec) {
			s.Subscription.Config = anyJSON(
				`"{{ fromConfigMap }}"`)
		}, ""},
		"installPlanApproval empty": {func(s *spec) { s.Subscription.InstallPlanApproval = anyJSON(`""`) },
			""},
		"installPlanApproval an object": {func(s *spec) { s.Subscription.InstallPlanApproval = anyJSON(`{}`) },
			"spec.subscription.installPlanApproval"},
		"a group without a name": {group(policyv1beta2.OperatorGroupTemplate{}),
			"spec.operatorGroup.name: Required"},
		"a group in another namespace": {group(policyv1beta2.OperatorGroupTemplate{Name: "g",
			Namespace: "other"}), "spec.operatorGroup.namespace"},
		"a group in the same namespace": {group(policyv1beta2.OperatorGroupTemplate{Name: "g",
			Namespace: "shop"}), ""},
		"targets in the design's form": {group(policyv1beta2.OperatorGroupTemplate{Name: "g",
			Target: &policyv1beta2.OperatorGroupTarget{Namespaces: anyJSON(`["a","b"]`)}}), ""},
		"targets in OLM's form": {group(policyv1beta2.OperatorGroupTemplate{Name: "g",
			TargetNamespaces: anyJSON(`["a"]`)}), ""},
		"targets in both forms": {group(policyv1beta2.OperatorGroupTemplate{Name: "g",
			TargetNamespaces: anyJSON(`["a"]`),
			Target:           &policyv1beta2.OperatorGroupTarget{Namespaces: anyJSON(`["a"]`)}}),
			"spec.operatorGroup.target.namespaces: Forbidden"},
		"targets and a selector": {group(policyv1beta2.OperatorGroupTemplate{Name: "g",
			TargetNamespaces: anyJSON(`["a"]`), Selector: anyJSON(`{"matchLabels":{"a":"b"}}`)}),
			"spec.operatorGroup.selector: Forbidden"},
		"targets that are text": {group(policyv1beta2.OperatorGroupTemplate{Name: "g",
			TargetNamespaces: anyJSON(`"a"`)}), "spec.operatorGroup.targetNamespaces"},
		"targets as template text": {group(policyv1beta2.OperatorGroupTemplate{Name: "g",
			TargetNamespaces: anyJSON(`"{{ toLiteral }}"`)}), ""},
		"a target that is no namespace": {group(policyv1beta2.OperatorGroupTemplate{Name: "g",
			TargetNamespaces: anyJSON(`["a","B"]`)}), "spec.operatorGroup.targetNamespaces[1]"},
		"a selector with an unknown operator": {group(policyv1beta2.OperatorGroupTemplate{Name: "g",
			Selector: anyJSON(`{"matchExpressions":[{"key":"a","operator":"Like"}]}`)}),
			"matchExpressions[0].operator"},
		"removalBehavior with a wrong value": {func(s *spec) { s.RemovalBehavior.InstallPlans = policyv1beta2.RemovalDeleteIfUnused }, "spec.removalBehavior.installPlans"},
		"complianceConfig with a wrong value": {func(s *spec) { s.ComplianceConfig.UpgradesAvailable = "Condition" },
			"spec.complianceConfig.upgradesAvailable"},
		"statusConfig with a wrong value": {func(s *spec) { s.StatusConfig = &policyv1beta2.StatusConfig{UpgradesAvailable: "Warning"} }, "spec.statusConfig.upgradesAvailable"},
		"consent without anything":        {reviewing(policyv1beta2.Consent{}), ""},
		"consent to a digest":             {consentTo(strings.Repeat("0", 64)), ""},
		"consent with an unknown action": {reviewing(policyv1beta2.Consent{Webhooks: "Deny"}),
			"spec.consent.webhooks: Unsupported"},
		"firstInstall in lower case": {reviewing(policyv1beta2.Consent{FirstInstall: "hold"}),
			"spec.consent.firstInstall"},
		"a digest that is too short": {consentTo(strings.Repeat("0", 63)),
			"spec.consent.accepted[0]: Invalid"},
		"a digest in upper case":        {consentTo(strings.Repeat("A", 64)), "lower case"},
		"a digest in full-width digits": {consentTo("\uff10" + strings.Repeat("0", 63)), "U+FF10"},
		"a digest with a blank":         {consentTo(strings.Repeat("0", 64) + " "), "white space"},
		"a digest of another algorithm": {reviewing(
			policyv1beta2.Consent{Accepted: []string{"sha512:" + strings.Repeat("0", 64)}}),
			"another algorithm than sha256"},
		"a digest without its algorithm": {reviewing(
			policyv1beta2.Consent{Accepted: []string{strings.Repeat("0", 64)}}), "is not a digest"},
		"a digest twice": {consentTo(strings.Repeat("0", 64), strings.Repeat("0", 64)),
			"spec.consent.accepted[1]: Duplicate"},
		"a digest as template text": {reviewing(
			policyv1beta2.Consent{Accepted: []string{"{{ fromConfigMap }}"}}), "is not a digest"},
		"thousands of digests": {consentTo(make([]string, 5000)...), "spec.consent.accepted: Too many"},
		"statusConfig and an equal new config": {func(s *spec) {
			s.StatusConfig = &policyv1beta2.StatusConfig{UpgradesAvailable: "Condition"}
			s.ComplianceConfig.UpgradesAvailable = "Compliant"
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			errs := NewOperatorPolicy(operatorPolicy("etcd", c.edit)).Invalid
			switch {
			case c.want == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs.ToAggregate())
			case c.want != "" && len(errs) == 0:
				t.Error("accepted")
			case c.want != "" && !strings.Contains(errs.ToAggregate().Error(), c.want):
				t.Errorf("error %q does not say %q", errs.ToAggregate(), c.want)
			}
		})
	}
}

// TestTemplatesSwitchedOff reads template text literally if templates are disabled: then it is not a valid name.
func TestTemplatesSwitchedOff(t *testing.T) {
	op := operatorPolicy("etcd", versions("{{ fromConfigMap }}"))
	op.Annotations = map[string]string{"policy.open-cluster-management.io/disable-templates": "true"}
	if errs := NewOperatorPolicy(op).Invalid; len(errs) == 0 {
		t.Error("template text that is never resolved is accepted")
	}
}

// TestUnreadablePoliciesHold stores what admission would have refused, as if the gate had been down: what such a policy
// governs is held, by Subscription and by plan (threat G5).
func TestUnreadablePoliciesHold(t *testing.T) {
	type spec = policyv1beta2.OperatorPolicySpec
	for name, edit := range map[string]func(*spec){
		"a range that does not parse":      func(s *spec) { s.VersionRange = "newest" },
		"a version that can match nothing": versions("Etcd!"),
		"an unknown complianceType":        func(s *spec) { s.ComplianceType = "mustonlyhave" },
		"an unknown remediationAction":     func(s *spec) { s.RemediationAction = "enforced" },
		"an unknown upgradeApproval":       func(s *spec) { s.UpgradeApproval = "Manual" },
		"template text in the catalog":     func(s *spec) { s.Subscription.Source = "{{ fromConfigMap }}" },
		"template text in the channel":     func(s *spec) { s.Subscription.Channel = "{{ fromConfigMap }}" },
		"template text in the range":       func(s *spec) { s.VersionRange = "{{ fromConfigMap }}" },
		"template text in a mustnothave": func(s *spec) {
			s.ComplianceType, s.Versions = policyv1beta2.MustNotHave,
				[]string{"{{ x }}"}
		},
		"blanks only, which are no versions": versions(" ", ","),
	} {
		t.Run(name, func(t *testing.T) {
			p := policyFor("etcd", edit)
			ns := state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{p}})
			if v := JudgePlan(PlanInput{Plan: pendingPlan("etcd 0.9.2"), Namespace: ns}); v.Decision != verdict.Hold ||
				v.Reasons[0].Rule != bundle.RulePolicyUnreadable {
				t.Errorf("the plan: %s %v", v.Decision, v.Reasons)
			}
			sub := subscriptionTo("etcd")
			if v := JudgeSubscription(SubscriptionInput{New: sub, Namespace: ns,
				Mode: DenyApproval}); v.Decision != verdict.Hold {
				t.Errorf("the Subscription: %s %v", v.Decision, v.Reasons)
			}
			if mode, _ := (*state.Namespace)(nil).Approval(p); mode != olm.ApprovalManual {
				t.Errorf("approval is %s", mode)
			}
		})
	}
}

// TestNormalizeTwice: normalizing is idempotent (threat G11).
func TestNormalizeTwice(t *testing.T) {
	actions := []policyv1beta2.StatusConfigAction{"", "StatusMessageOnly", "Condition", "NonCompliant", "Compliant"}
	configs := []policyv1beta2.ComplianceConfigAction{"", "Compliant", "NonCompliant"}
	for _, before := range actions {
		for _, after := range actions {
			for _, config := range configs {
				old := operatorPolicy("etcd", func(s *policyv1beta2.OperatorPolicySpec) {
					s.StatusConfig = &policyv1beta2.StatusConfig{UpgradesAvailable: before}
					s.ComplianceConfig.UpgradesAvailable = config
				})
				op := old.DeepCopy()
				op.Spec.StatusConfig.UpgradesAvailable = after
				for _, stored := range []*policyv1beta2.OperatorPolicy{nil, old} {
					next := op.DeepCopy()
					for _, change := range NormalizeOperatorPolicy(next, stored) {
						next.Spec.ComplianceConfig = change.Value.(policyv1beta2.ComplianceConfig)
					}
					if again := NormalizeOperatorPolicy(next, stored); len(again) > 0 {
						t.Errorf("statusConfig %q to %q, complianceConfig %q: the second time %+v", before, after,
							config, again)
					}
					if next.Spec.ComplianceConfig.UpgradesAvailable == "" {
						t.Error("a field was not filled")
					}
				}
			}
		}
	}
}

// FuzzPolicy searches for an OperatorPolicy that panics, or that admission allows although judging cannot read it.
func FuzzPolicy(f *testing.F) {
	const head = `{"metadata":{"namespace":"policies","name":"etcd"},"spec":{"remediationAction":"enforce","complianceType":"musthave","upgradeApproval":"None","subscription":{"name":"etcd","namespace":"shop"`
	f.Add(head + `},"versions":["etcd.v1.0.0, etcd.v1.0.1"],"versionRange":">=1.0.0"}}`)
	f.Add(head + `},"versions":["etcd.v1.0.0@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08, etcd.v1.0.0, etcd.v2@sha256:"]}}`)
	f.Add(head + `,"config":{"env":[{"name":"A"}]}},"operatorGroup":{"name":"g","target":{"namespaces":["a"]}}}}`)
	f.Add(head + `},"statusConfig":{"upgradesAvailable":"Condition"}}}`)
	f.Add(`{"spec":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		op, strict, err := DecodeOperatorPolicy([]byte(text))
		if err != nil {
			return
		}
		p := NewOperatorPolicy(op)
		NormalizeOperatorPolicy(op, nil)
		v := JudgeOperatorPolicy(OperatorPolicyInput{Policy: p, Strict: strict,
			Namespace: func(string) *state.Namespace { return nil }})
		if v.Decision == verdict.Allow && p.Unreadable() != "" && !strings.Contains(p.Unreadable(), "template text") {
			t.Errorf("admitted, and cannot be judged by: %s", p.Unreadable())
		}
	})
}
