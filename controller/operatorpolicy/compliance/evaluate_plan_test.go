package compliance

import (
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/verdict"
)

// upgrading is an installed operator with a plan for another version.
func upgrading(p *olm.InstallPlan, ref string) given {
	return func(in *fixture) {
		running(in)
		in.Subscriptions[0].Status.CurrentCSV, in.Subscriptions[0].Status.InstallPlan.Name = "etcd.v1.3.0", ref
		plans(p)(in)
	}
}

func nonCompliantUpgrades(c *policyv1beta2.ComplianceConfig) {
	c.UpgradesAvailable = policyv1beta2.ConfigNonCompliant
}

func nonCompliantProgress(c *policyv1beta2.ComplianceConfig) {
	c.UpgradesProgressing = policyv1beta2.ConfigNonCompliant
}

func step(resolving, status string) olm.Step {
	return olm.Step{Resolving: resolving, Status: status}
}

func withSteps(p *olm.InstallPlan, steps ...olm.Step) *olm.InstallPlan {
	p.Status.Steps = steps
	return p
}

func approved(p *olm.InstallPlan) *olm.InstallPlan {
	p.Spec.Approved = true
	return p
}

func overridden(p *olm.InstallPlan, reason string) *olm.InstallPlan {
	p.Metadata.Annotations.OverrideReason = reason
	return approved(p)
}

func newer(p *olm.InstallPlan, generation int64) *olm.InstallPlan {
	p.Spec.Generation = generation
	return p
}

func TestEvaluateInstallPlan(t *testing.T) {
	waiting := plan("install-b", olm.PhaseRequiresApproval, "vault.v2.0.0", "etcd.v1.3.0")
	for _, s := range []scenario{
		{
			name: "9.2 nothing is being installed",
			given: []given{ready, subscription("etcd",
				func(s *olm.Subscription) { s.Status.InstalledCSV, s.Status.CurrentCSV = "", "" }), plans(waiting)},
			want:    map[string]string{TypeInstallPlan: "True NoInstallPlansFound"},
			says:    map[string]string{TypeInstallPlan: "there are no relevant InstallPlans in namespace shop"},
			related: map[string][]string{kindInstallPlan: {"- Compliant There are no relevant InstallPlans in this namespace"}},
		},
		{
			name: "no plan at all, and nothing known of the namespace", given: []given{ready, subscription("etcd")},
			want: map[string]string{TypeInstallPlan: "True NoInstallPlansFound"},
		},
		{
			name: "the plan that the Subscription refers to is gone",
			given: []given{ready, subscription("etcd",
				func(s *olm.Subscription) { s.Status.InstallPlan.Name = "install-z" })},
			want: map[string]string{TypeInstallPlan: "True NoInstallPlansFound"},
			says: map[string]string{TypeInstallPlan: "there are no relevant InstallPlans in namespace shop; install-z, which the Subscription refers to, no longer exists"},
		},
		{
			name: "9.3 an upgrade waits, informing", given: []given{upgrading(waiting, "install-b")},
			want: map[string]string{TypeInstallPlan: "True InstallPlanRequiresApproval"},
			says: map[string]string{TypeInstallPlan: "An upgrade to etcd.v1.3.0 is available on the stable-1.2 channel, " +
				"the InstallPlan shop/install-b for [etcd.v1.3.0, vault.v2.0.0] awaits approval"},
			related: map[string][]string{kindInstallPlan: {"install-b Compliant The InstallPlan is RequiresApproval"}},
		},
		{
			name:    "9.4 story 3: an upgrade waits and counts",
			given:   []given{upgrading(waiting, "install-b"), config(nonCompliantUpgrades)},
			want:    map[string]string{TypeInstallPlan: "False InstallPlanRequiresApproval"},
			related: map[string][]string{kindInstallPlan: {"install-b NonCompliant The InstallPlan is RequiresApproval"}},
		},
		{
			name: "statusConfig counts where complianceConfig is empty",
			given: []given{upgrading(waiting, "install-b"), spec(func(s *policyv1beta2.OperatorPolicySpec) {
				s.StatusConfig = &policyv1beta2.StatusConfig{UpgradesAvailable: policyv1beta2.StatusConfigNonCompliant}
			})},
			want: map[string]string{TypeInstallPlan: "False InstallPlanRequiresApproval"},
		},
		{
			name: "9.5 what keeps the plan from being approved is told",
			given: []given{enforced, upgrading(waiting, "install-b"), func(in *fixture) {
				in.Approvals["install-b"] = Approval{Problem: "conflict",
					Reasons: []verdict.Reason{{Message: "vault.v2.0.0 is not allowed"},
						{Message: "etcd.v1.3.0 is held"}}}
			}},
			says: map[string]string{TypeInstallPlan: "An upgrade to etcd.v1.3.0 is available on the stable-1.2 channel, " +
				"the InstallPlan shop/install-b for [etcd.v1.3.0, vault.v2.0.0] awaits approval; vault.v2.0.0 is not allowed; etcd.v1.3.0 is held; it could not be approved: conflict"},
		},
		{
			name: "a first installation waits",
			given: []given{ready, subscription("etcd",
				func(s *olm.Subscription) { s.Status.InstalledCSV, s.Status.CurrentCSV = "", "etcd.v1.3.0" }),
				plans(waiting)},
			want: map[string]string{TypeInstallPlan: "False InstallPlanRequiresApproval"},
			says: map[string]string{TypeInstallPlan: "An installation of etcd.v1.3.0 is available on the stable-1.2 channel, " +
				"the InstallPlan shop/install-b for [etcd.v1.3.0, vault.v2.0.0] awaits approval"},
		},
		{
			name: "a first installation is no upgrade",
			given: []given{ready, config(
				func(c *policyv1beta2.ComplianceConfig) { c.UpgradesAvailable = policyv1beta2.ConfigCompliant }),
				subscription("etcd", func(s *olm.Subscription) {
					s.Status.InstalledCSV, s.Status.CurrentCSV = "",
						"etcd.v1.3.0"
				}), plans(waiting)},
			want:    map[string]string{TypeInstallPlan: "False InstallPlanRequiresApproval"},
			related: map[string][]string{kindInstallPlan: {"install-b NonCompliant The InstallPlan is RequiresApproval"}},
		},
		{
			name: "an allow-list requires no installation",
			given: []given{ready, config(nonCompliantUpgrades),
				spec(func(s *policyv1beta2.OperatorPolicySpec) { s.ComplianceType = policyv1beta2.MayHave }),
				subscription("etcd", func(s *olm.Subscription) {
					s.Status.InstalledCSV, s.Status.CurrentCSV = "",
						"etcd.v1.3.0"
				}), plans(waiting)},
			want:    map[string]string{TypeInstallPlan: "True InstallPlanRequiresApproval"},
			related: map[string][]string{kindInstallPlan: {"install-b Compliant The InstallPlan is RequiresApproval"}},
		},
		{
			name: "9.7 the plan was approved a moment ago", given: []given{enforced,
				upgrading(approved(plan("install-b", olm.PhaseRequiresApproval, "etcd.v1.3.0")), "install-b"),
				config(nonCompliantUpgrades)},
			want:    map[string]string{TypeInstallPlan: "True InstallPlanApproved"},
			says:    map[string]string{TypeInstallPlan: "the InstallPlan shop/install-b for etcd.v1.3.0 was approved"},
			related: map[string][]string{kindInstallPlan: {"install-b Compliant The InstallPlan is RequiresApproval"}},
		},
		{
			name: "an approved plan is an upgrade in progress", given: []given{enforced,
				upgrading(approved(plan("install-b", olm.PhaseRequiresApproval, "etcd.v1.3.0")), "install-b"),
				config(nonCompliantProgress)},
			want: map[string]string{TypeInstallPlan: "False InstallPlanApproved"},
		},
		{
			name: "a complete plan is an upgrade in progress until OLM reports the version", given: []given{enforced,
				upgrading(plan("install-b", olm.PhaseComplete, "etcd.v1.3.0"), "install-b"), config(nonCompliantProgress)},
			want: map[string]string{TypeInstallPlan: "False InstallPlansInstalling"},
		},
		{
			name: "an approval that is tried again is an upgrade in progress", given: []given{enforced, upgrading(waiting, "install-b"),
				func(in *fixture) { in.Approvals["install-b"] = Approval{Problem: "conflict"} }, config(nonCompliantProgress)},
			want: map[string]string{TypeInstallPlan: "False InstallPlanRequiresApproval"},
		},
		{
			name: "24.1 a plan waits for another operator only", given: []given{running, config(nonCompliantUpgrades),
				plans(plan("install-b", olm.PhaseRequiresApproval, "etcd.v1.2.0", "vault.v2.0.0")),
				func(in *fixture) { in.Subscriptions[0].Status.InstallPlan.Name = "install-b" }},
			want:    map[string]string{TypeInstallPlan: "True NoInstallPlansRequiringApproval"},
			related: map[string][]string{kindInstallPlan: {"install-b Compliant The InstallPlan is RequiresApproval"}},
		},
		{
			name:    "R-ST-13 a plan is installing",
			given:   []given{upgrading(plan("install-b", olm.PhaseInstalling, "etcd.v1.3.0"), "install-b")},
			want:    map[string]string{TypeInstallPlan: "True InstallPlansInstalling"},
			says:    map[string]string{TypeInstallPlan: "the InstallPlan shop/install-b is installing"},
			related: map[string][]string{kindInstallPlan: {"install-b Compliant The InstallPlan is Installing"}},
		},
		{
			name: "R-ST-13 a plan is installing and that counts",
			given: []given{upgrading(plan("install-b", olm.PhaseInstalling, "etcd.v1.3.0"), "install-b"),
				config(func(c *policyv1beta2.ComplianceConfig) { c.UpgradesProgressing = policyv1beta2.ConfigNonCompliant })},
			want:    map[string]string{TypeInstallPlan: "False InstallPlansInstalling"},
			related: map[string][]string{kindInstallPlan: {"install-b NonCompliant The InstallPlan is Installing"}},
		},
		{
			name: "a plan was approved by break-glass",
			given: []given{upgrading(overridden(plan("install-b", olm.PhaseComplete, "etcd.v1.3.0"), "CVE-1\n"),
				"install-b")},
			says: map[string]string{TypeInstallPlan: `no InstallPlans requiring approval were found; ` +
				`a user approved the InstallPlan shop/install-b although it is refused, and gave the reason "CVE-1\n"`},
		},
		{
			name:    "R-ST-12 a plan has failed",
			given:   []given{upgrading(plan("install-b", olm.PhaseFailed, "etcd.v1.3.0"), "install-b")},
			want:    map[string]string{TypeInstallPlan: "False InstallPlanFailed"},
			says:    map[string]string{TypeInstallPlan: "the InstallPlan shop/install-b has failed"},
			related: map[string][]string{kindInstallPlan: {"install-b NonCompliant The InstallPlan is Failed"}},
		},
		{
			name: "R-ST-12 a plan for several has failed another operator",
			given: []given{upgrading(withSteps(plan("install-b", olm.PhaseFailed, "etcd.v1.3.0", "vault.v2.0.0"),
				step("etcd.v1.3.0", "Created"), step("etcd.v1.3.0", "Present"), step("vault.v2.0.0", "Unknown")),
				"install-b")},
			want: map[string]string{TypeInstallPlan: "True NoInstallPlansRequiringApproval"},
		},
		{
			name: "R-ST-12 a plan for several has failed this operator",
			given: []given{upgrading(withSteps(plan("install-b", olm.PhaseFailed, "etcd.v1.3.0", "vault.v2.0.0"),
				step("etcd.v1.3.0", "Created"), step("etcd.v1.3.0", "NotPresent")), "install-b")},
			want: map[string]string{TypeInstallPlan: "False InstallPlanFailed"},
		},
		{
			name: "R-ST-12 a plan for several has failed before its first step",
			given: []given{upgrading(plan("install-b", olm.PhaseFailed, "etcd.v1.3.0", "vault.v2.0.0"),
				"install-b")},
			want: map[string]string{TypeInstallPlan: "False InstallPlanFailed"},
		},
		{
			name:    "a plan is being made",
			given:   []given{upgrading(plan("install-b", "Planning", "etcd.v1.3.0"), "install-b")},
			want:    map[string]string{TypeInstallPlan: "True NoInstallPlansRequiringApproval"},
			related: map[string][]string{kindInstallPlan: {"install-b NonCompliant The InstallPlan is Planning"}},
		},
		{
			name:    "a plan has no phase yet",
			given:   []given{upgrading(plan("install-b", "", "etcd.v1.3.0"), "install-b")},
			want:    map[string]string{TypeInstallPlan: "True NoInstallPlansRequiringApproval"},
			related: map[string][]string{kindInstallPlan: {"install-b NonCompliant The InstallPlan is Unknown"}},
		},
		{
			name: "R-AP-1 the plan that is referred to counts, not the newest",
			given: []given{upgrading(waiting, "install-b"),
				plans(newer(plan("install-c", olm.PhaseFailed, "etcd.v1.3.0"), 9))},
			related: map[string][]string{kindInstallPlan: {"install-b Compliant The InstallPlan is RequiresApproval"}},
		},
		{
			name: "without a reference the newest for the version counts",
			given: []given{upgrading(newer(plan("install-b", olm.PhaseFailed, "etcd.v1.3.0"), 4), ""),
				plans(newer(plan("install-c", olm.PhaseRequiresApproval, "etcd.v1.3.0"), 5),
					newer(plan("install-d", olm.PhaseFailed, "vault.v2.0.0"), 6))},
			related: map[string][]string{kindInstallPlan: {"install-c Compliant The InstallPlan is RequiresApproval"}},
		},
		{
			name: "without a reference a plan that is done beats its duplicate",
			given: []given{upgrading(newer(plan("install-b", olm.PhaseComplete, "etcd.v1.3.0"), 4), ""),
				plans(newer(plan("install-c", olm.PhaseRequiresApproval, "etcd.v1.3.0"), 5))},
			related: map[string][]string{kindInstallPlan: {"install-b Compliant The InstallPlan is Complete"}},
		},
		{
			name: "plans without a generation count too",
			given: []given{upgrading(newer(plan("install-b", olm.PhaseRequiresApproval, "etcd.v1.3.0"), 0),
				"gone")},
			want: map[string]string{TypeInstallPlan: "True InstallPlanRequiresApproval"},
		},
	} {
		s.run(t)
	}
}

// TestWaiting is what the printer column shows of a plan that requires approval.
func TestWaiting(t *testing.T) {
	pending := plan("install-b", olm.PhaseRequiresApproval, "etcd.v1.3.0")
	listed, upgrade := verdict.Reason{Rule: "bundle/version"}, verdict.Reason{Rule: "bundle/upgrade"}
	for name, c := range map[string]struct {
		plan     *olm.InstallPlan
		approval Approval
		want     string
	}{
		"a rule holds it":            {pending, Approval{Reasons: []verdict.Reason{listed}}, "etcd.v1.3.0 (bundle/version)"},
		"several rules do":           {pending, Approval{Reasons: []verdict.Reason{listed, upgrade}}, "etcd.v1.3.0 (bundle/version +1)"},
		"its Subscription is Manual": {pending, Approval{Reasons: []verdict.Reason{{Message: "it is held"}}}, "etcd.v1.3.0 (a user)"},
		"a policy informs":           {pending, Approval{}, "etcd.v1.3.0 (a user)"},
		"the approval failed":        {pending, Approval{Problem: "conflict"}, "etcd.v1.3.0 (Opgate, which tries again)"},
		"it was approved":            {approved(plan("install-b", olm.PhaseRequiresApproval, "etcd.v1.3.0")), Approval{}, ""},
		"it is complete":             {plan("install-b", olm.PhaseComplete, "etcd.v1.3.0"), Approval{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(enforced, upgrading(c.plan, "install-b"))
			in.Approvals["install-b"] = c.approval
			if status, _ := Finish(in, Evaluate(in), 10); status.Waiting != c.want {
				t.Errorf("waiting is %q, want %q", status.Waiting, c.want)
			}
		})
	}
}
