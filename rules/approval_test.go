package rules

import (
	"strings"
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// follows is a Subscription to a package whose status names the plan of pendingPlan.
func follows(pkg, approval string) *olm.Subscription {
	s := subscribed(pkg, "", "")
	s.Metadata.Name = pkg
	s.Spec.InstallPlanApproval = approval
	s.Status.InstallPlan.Name = "install-x7"
	return s
}

// TestJudgeApproval shows which plans the loop approves by itself. A user may approve each of them; the reverse does
// not hold.
func TestJudgeApproval(t *testing.T) {
	vault := policyFor("vault", versions("vault.v0.1.9"))
	informing := policyFor("vault",
		func(s *policyv1beta2.OperatorPolicySpec) { s.RemediationAction = policyv1beta2.Inform })
	broken := policyFor("vault", func(s *policyv1beta2.OperatorPolicySpec) {
		s.OperatorGroup = &policyv1beta2.OperatorGroupTemplate{Name: "Not_A_Name"}
	})
	incomplete := policyFor("vault", func(s *policyv1beta2.OperatorPolicySpec) {
		s.OperatorGroup = &policyv1beta2.OperatorGroupTemplate{Name: `{{ fromConfigMap "policies" "vault" "group" }}`}
	})
	completed := incomplete.Completed(operatorPolicy("vault", func(s *spec) {
		s.OperatorGroup = &policyv1beta2.OperatorGroupTemplate{Name: "group"}
	}), nil)
	second := operatorPolicy("vault", nil)
	second.Name = "vault-too"
	allowing := policyFor("vault",
		func(s *spec) { s.ComplianceType, s.Versions = policyv1beta2.MayHave, []string{"vault.v0.1.9"} })
	forbidding := policyFor("vault",
		func(s *spec) { s.ComplianceType, s.Versions = policyv1beta2.MustNotHave, []string{"vault.v0.2.0"} })
	asked := func(pkg string) *olm.Subscription {
		s := follows(pkg, "Manual")
		s.Metadata.Annotations.RequestedApproval = olm.ApprovalAutomatic
		return s
	}
	named := func(state string) *olm.Subscription {
		s := follows("vault", "Manual")
		s.Status.InstalledCSV, s.Status.State = "vault.v0.1.9", state
		return s
	}
	type subscriptions = []*olm.Subscription
	for name, c := range map[string]struct {
		plan          *olm.InstallPlan
		edit          func(*olm.InstallPlan)
		policies      []*operatorpolicy.Policy
		subscriptions subscriptions
		csvs          []state.Installed
		ungoverned    UngovernedMode
		want          bool
		blocked       string // what one blocker must contain
		idle          bool   // whether no plan waits
	}{
		"allowed": {plan: pendingPlan("vault 0.1.9"), policies: []*operatorpolicy.Policy{vault},
			subscriptions: subscriptions{follows("vault", "Manual")}, want: true},
		"not listed": {plan: pendingPlan("vault 0.2.0"), policies: []*operatorpolicy.Policy{vault},
			subscriptions: subscriptions{follows("vault", "Manual")},
			blocked:       "vault.v0.2.0 is not allowed by OperatorPolicy policies/vault (bundle/version)"},
		"with what it requires": {plan: pendingPlan("vault 0.1.9 etcd", "etcd 0.9.4"),
			policies:      []*operatorpolicy.Policy{vault},
			subscriptions: subscriptions{follows("vault", "Manual")}, ungoverned: HoldUngoverned, want: true},
		"a cycle that is wanted": {plan: pendingPlan("vault 0.1.9 etcd", "etcd 0.9.4 vault etcd"),
			policies:      []*operatorpolicy.Policy{vault},
			subscriptions: subscriptions{follows("vault", "Manual")}, want: true},
		"a package without a Subscription is in the plan": {plan: pendingPlan("vault 0.1.9", "prometheus 0.56.0"),
			policies:      []*operatorpolicy.Policy{vault},
			subscriptions: subscriptions{follows("vault", "Manual")}, blocked: "no policy governs package prometheus"},
		"a neighbour that asked for Automatic": {plan: pendingPlan("vault 0.1.9", "prometheus 0.56.0"),
			policies:      []*operatorpolicy.Policy{vault},
			subscriptions: subscriptions{follows("vault", "Manual"), follows("prometheus", "Automatic")}, want: true},
		"a neighbour that asked for Automatic, and its dependency": {plan: pendingPlan("prometheus 0.56.0 etcd",
			"etcd 0.9.4"), policies: []*operatorpolicy.Policy{vault},
			subscriptions: subscriptions{follows("vault", "Manual"), follows("prometheus", "Automatic")}, want: true},
		"only neighbours, but a person said Manual": {plan: pendingPlan("prometheus 0.56.0"),
			policies:      []*operatorpolicy.Policy{vault},
			subscriptions: subscriptions{follows("vault", "Manual"), follows("prometheus", "Manual")},
			blocked:       "asks for Manual approval"},
		"neighbours are left to people": {plan: pendingPlan("prometheus 0.56.0"), policies: []*operatorpolicy.Policy{vault},
			ungoverned:    HoldUngoverned,
			subscriptions: subscriptions{follows("vault", "Manual"), follows("prometheus", "Automatic")},
			blocked:       "ungoverned: hold"},
		"an unknown mode": {plan: pendingPlan("prometheus 0.56.0"), policies: []*operatorpolicy.Policy{vault},
			ungoverned:    "aprove",
			subscriptions: subscriptions{follows("vault", "Manual"), follows("prometheus", "Automatic")},
			blocked:       "ungoverned: hold"},
		"an automatic neighbour requires a denied one": {plan: pendingPlan("prometheus 0.56.0 vault", "vault 0.2.0"),
			policies:      []*operatorpolicy.Policy{vault},
			subscriptions: subscriptions{follows("prometheus", "Automatic")}, blocked: "vault.v0.2.0 is not allowed"},
		"the policy only informs": {plan: pendingPlan("vault 0.1.9"), policies: []*operatorpolicy.Policy{informing},
			subscriptions: subscriptions{follows("vault", "Manual")}, idle: true},
		"no policy enforces in the namespace": {plan: pendingPlan("prometheus 0.56.0"),
			subscriptions: subscriptions{follows("prometheus", "Automatic")}, idle: true},
		"no Subscription follows the plan (R-AP-1)": {plan: pendingPlan("vault 0.1.9"),
			policies:      []*operatorpolicy.Policy{vault},
			subscriptions: subscriptions{subscribed("vault", "vault.v0.1.9", "")}, idle: true},
		"approved already": {plan: pendingPlan("vault 0.1.9"),
			edit: func(p *olm.InstallPlan) { p.Spec.Approved = true }, policies: []*operatorpolicy.Policy{vault},
			subscriptions: subscriptions{follows("vault", "Manual")}, idle: true},
		"installed already": {plan: pendingPlan("vault 0.1.9"), policies: []*operatorpolicy.Policy{vault},
			csvs:          []state.Installed{{Bundle: olm.Bundle{Name: "vault.v0.1.9", Package: "vault"}}},
			subscriptions: subscriptions{follows("vault", "Manual")}, idle: true},
		"installed already, as a copy": {plan: pendingPlan("vault 0.1.9"), policies: []*operatorpolicy.Policy{vault},
			subscriptions: subscriptions{named("AtLatestKnown")}, idle: true},
		"installed before, as a copy that is gone": {plan: pendingPlan("vault 0.1.9"),
			policies:      []*operatorpolicy.Policy{vault},
			subscriptions: subscriptions{named(olm.StateUpgradePending)}, want: true},
		"complete": {plan: pendingPlan("vault 0.1.9"),
			edit: func(p *olm.InstallPlan) { p.Status.Phase = olm.PhaseComplete }, policies: []*operatorpolicy.Policy{vault},
			subscriptions: subscriptions{follows("vault", "Manual")}, idle: true},
		"the installed version must not be replaced (R-AP-7)": {
			plan:          pendingPlan("vault 0.1.9"),
			policies:      []*operatorpolicy.Policy{vault},
			csvs:          []state.Installed{{Bundle: olm.Bundle{Name: "vault.v0.1.8", Package: "vault"}, NotUpgradeable: "Upgradeable is False"}},
			subscriptions: subscriptions{follows("vault", "Manual")},
			blocked:       "vault.v0.1.9 cannot replace vault.v0.1.8 now and is held (bundle/not-upgradeable): OperatorCondition vault.v0.1.8: Upgradeable is False",
		},
		"a neighbour must not be replaced": {
			plan:          pendingPlan("vault 0.1.9", "prometheus 0.56.0"),
			policies:      []*operatorpolicy.Policy{vault},
			csvs:          []state.Installed{{Bundle: olm.Bundle{Name: "prometheus.v0.55.0", Package: "prometheus"}, NotUpgradeable: "Upgradeable is False"}},
			subscriptions: subscriptions{follows("vault", "Manual"), follows("prometheus", "Automatic")},
			blocked:       "prometheus.v0.56.0 cannot replace prometheus.v0.55.0 now",
		},
		"another operator must not be replaced": {
			plan:          pendingPlan("vault 0.1.9"),
			policies:      []*operatorpolicy.Policy{vault},
			csvs:          []state.Installed{{Bundle: olm.Bundle{Name: "prometheus.v0.55.0", Package: "prometheus"}, NotUpgradeable: "Upgradeable is False"}},
			subscriptions: subscriptions{follows("vault", "Manual")},
			want:          true,
		},
		"an invalid policy approves nothing (R-LP-1)": {plan: pendingPlan("vault 0.1.9"),
			policies:      []*operatorpolicy.Policy{broken},
			subscriptions: subscriptions{follows("vault", "Manual")}, blocked: "is not valid: spec.operatorGroup.name"},
		"a policy that is not completed yet approves nothing (R-LP-1)": {plan: pendingPlan("vault 0.1.9"),
			policies:      []*operatorpolicy.Policy{incomplete},
			subscriptions: subscriptions{follows("vault", "Manual")}, blocked: "is not completed yet"},
		"what a completed policy says is taken as it is": {plan: pendingPlan("vault 0.1.9"),
			policies:      []*operatorpolicy.Policy{completed},
			subscriptions: subscriptions{follows("vault", "Manual")}, want: true},
		"overlapping policies approve nothing (R-AP-2)": {plan: pendingPlan("vault 0.1.9"),
			policies:      []*operatorpolicy.Policy{vault, NewOperatorPolicy(second)},
			subscriptions: subscriptions{follows("vault", "Manual")}, blocked: "overlap"},
		"an allow-list, for Automatic": {plan: pendingPlan("vault 0.1.9"), policies: []*operatorpolicy.Policy{allowing},
			subscriptions: subscriptions{asked("vault")}, want: true},
		"an allow-list, for a user who said Manual": {plan: pendingPlan("vault 0.1.9"),
			policies:      []*operatorpolicy.Policy{allowing},
			subscriptions: subscriptions{follows("vault", "Manual")},
			blocked:       "vault.v0.1.9 is held: OperatorPolicy policies/vault allows it, and its Subscription asks for Manual approval, so that a user has to approve it"},
		"an allow-list, for a dependency": {plan: pendingPlan("vault 0.1.9", "etcd 0.9.4 vault"),
			policies:      []*operatorpolicy.Policy{allowing},
			subscriptions: subscriptions{asked("etcd")}, want: true},
		"a dependency of what waits for a user": {plan: pendingPlan("vault 0.1.9 etcd", "etcd 0.9.4"),
			policies:      []*operatorpolicy.Policy{allowing},
			subscriptions: subscriptions{follows("vault", "Manual")},
			blocked:       "etcd.v0.9.4 is held: vault.v0.1.9, which requires it, is held"},
		"what requires an allowed one of a user": {plan: pendingPlan("vault 0.1.9", "etcd 0.9.4 vault"),
			policies:      []*operatorpolicy.Policy{allowing},
			subscriptions: subscriptions{follows("vault", "Manual"), asked("etcd")}, want: true},
		"a version that is not forbidden, for Automatic": {plan: pendingPlan("vault 0.1.9"),
			policies:      []*operatorpolicy.Policy{forbidding},
			subscriptions: subscriptions{asked("vault")}, want: true},
		"a version that is not forbidden, for Manual": {plan: pendingPlan("vault 0.1.9"),
			policies:      []*operatorpolicy.Policy{forbidding},
			subscriptions: subscriptions{follows("vault", "Manual")},
			blocked: "vault.v0.1.9 is held: OperatorPolicy policies/vault does not forbid it, and its " +
				"Subscription asks for Manual approval, so that a user has to approve it"},
		"a version that is not forbidden, where people decide": {plan: pendingPlan("vault 0.1.9"),
			policies: []*operatorpolicy.Policy{forbidding}, ungoverned: HoldUngoverned,
			subscriptions: subscriptions{asked("vault")},
			blocked: "vault.v0.1.9 is held: OperatorPolicy policies/vault does not forbid it, and operators that no " +
				"policy wants wait for manual approval (ungoverned: hold); its Subscription is Manual, since each plan has to be judged by OperatorPolicy policies/vault first"},
		"an upgrade of what is removed": {plan: pendingPlan("vault 0.3.0"), policies: []*operatorpolicy.Policy{forbidding},
			subscriptions: subscriptions{asked("vault")},
			csvs:          []state.Installed{{Bundle: olm.Bundle{Name: "vault.v0.2.0", Package: "vault", Version: "0.2.0", Catalog: olm.Catalog{Namespace: "olm", Name: "operatorhubio-catalog"}}}},
			blocked:       "vault.v0.2.0, which is installed, is removed by OperatorPolicy policies/vault"},
		"a version that is forbidden": {plan: pendingPlan("vault 0.2.0"), policies: []*operatorpolicy.Policy{forbidding},
			subscriptions: subscriptions{asked("vault")}, blocked: "(bundle/mustnothave)"},
		"a policy that only informs does not overlap": {plan: pendingPlan("vault 0.1.9"),
			policies:      []*operatorpolicy.Policy{vault, informing},
			subscriptions: subscriptions{follows("vault", "Manual")}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.edit != nil {
				c.edit(c.plan)
			}
			if c.ungoverned == "" {
				c.ungoverned = ApproveUngoverned
			}
			ns := state.NewNamespace("shop", state.NamespaceContents{Policies: c.policies, Subscriptions: c.subscriptions,
				CSVs: c.csvs, Plans: []*olm.InstallPlan{c.plan}})
			a := JudgeApproval(ApprovalInput{Plan: c.plan, Namespace: ns, Ungoverned: c.ungoverned})
			if a.IsCandidate == c.idle || a.Should() != c.want {
				t.Errorf("waits is %t and should is %t, want %t and %t: %v", a.IsCandidate, a.Should(), !c.idle, c.want,
					a.Blockers)
			}
			if a.Should() && JudgePlan(PlanInput{Plan: c.plan, Namespace: ns}).Decision != verdict.Allow {
				t.Error("the loop approves what may not be approved")
			}
			if text := strings.Join(a.Blockers, "; "); c.blocked != "" && !strings.Contains(text, c.blocked) ||
				c.blocked == "" && text != "" {
				t.Errorf("blockers say %q, want %q", text, c.blocked)
			}
		})
	}
}
