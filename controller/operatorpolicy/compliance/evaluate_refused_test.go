package compliance

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// generating adds the step for a Subscription that OLM generates, as the store holds it.
func generating(t *testing.T, manifest string) func(*olm.InstallPlan) {
	t.Helper()
	return func(p *olm.InstallPlan) {
		step := olm.Step{Resource: olm.StepResource{Kind: olm.KindSubscription, Name: "etcd"}}
		raw, err := json.Marshal(manifest)
		if err != nil {
			t.Fatal(err)
		}
		if err := step.Resource.Manifest.UnmarshalJSON(raw); err != nil {
			t.Fatal(err)
		}
		p.Status.Steps = append(p.Status.Steps, step)
		p.Trim()
	}
}

// TestRefusedPlans covers approved plans with steps that are refused, such as a plan that OLM created as approved for
// an operator without a policy, which requires one that this policy forbids.
func TestRefusedPlans(t *testing.T) {
	etcd, vault := aCSV("etcd", "0.9.4"), aCSV("vault", "1.0.0")
	running := func(name string, edit ...func(*olm.InstallPlan)) *olm.InstallPlan {
		p := aPlan(name, 1, vault, etcd)
		p.Status.Phase = olm.PhaseInstalling
		for _, e := range edit {
			e(p)
		}
		return p
	}
	asks := aSubscription("vault", "")
	asks.Status.InstallPlan.Name = "install-x"
	const (
		cannotFinish = "the InstallPlan shop/install-x is approved and cannot finish, since OLM repeats what is refused: "
		forbidden    = "etcd.v0.9.4 is forbidden by OperatorPolicy policies/no-etcd (bundle/mustnothave): the policy is mustnothave for package etcd; " +
			"InstallPlan install-x, which installs it, was approved all the same"
		ends = "; to end that, change what refuses it, or delete the InstallPlan"
	)
	none := []string{"InstallPlan True/NoInstallPlansFound",
		"  shop/- Compliant There are no relevant InstallPlans in this namespace"}
	ignored := []string{"InstallPlan True/InstallPlanNotApplicable",
		"  shop/install-x Compliant Resource found but will not be handled in mustnothave mode uid-install-x"}
	refused := []string{"InstallPlan False/InstallPlanRefused",
		"  shop/install-x NonCompliant The InstallPlan is Installing uid-install-x"}
	for name, c := range map[string]struct {
		policy        func(*policyv1beta2.OperatorPolicySpec)
		subscriptions []*olm.Subscription
		plans         []*olm.InstallPlan
		others        []*operatorpolicy.Policy
		want          []string
		message       string
	}{
		"a dependency of an operator without a policy": {
			subscriptions: []*olm.Subscription{asks},
			plans:         []*olm.InstallPlan{running("install-x")},
			want:          refused,
			message: cannotFinish + forbidden + ends +
				" together with the Subscriptions that OLM would write another one for: shop/vault",
		},
		"no Subscription refers to the plan": {
			plans:   []*olm.InstallPlan{running("install-x")},
			want:    refused,
			message: cannotFinish + forbidden + ends,
		},
		"two plans": {
			plans: []*olm.InstallPlan{running("install-x"), running("install-y")},
			want:  append(refused, "  shop/install-y NonCompliant The InstallPlan is Installing uid-install-y"),
		},
		"the policy allows an operator and installs none": {
			policy: func(s *policyv1beta2.OperatorPolicySpec) {
				s.ComplianceType, s.Versions = policyv1beta2.MayHave, []string{"etcd.v0.9.2"}
			},
			plans: []*olm.InstallPlan{running("install-x")},
			want:  refused,
			message: cannotFinish + "etcd.v0.9.4 is not allowed by OperatorPolicy policies/no-etcd (bundle/version): allowed is etcd.v0.9.2; " +
				"InstallPlan install-x, which installs it, was approved all the same" + ends,
		},
		"the policy informs": {
			policy: func(s *policyv1beta2.OperatorPolicySpec) { s.RemediationAction = policyv1beta2.Inform },
			plans:  []*olm.InstallPlan{running("install-x")},
			want:   ignored,
		},
		"the policy forbids another version": {
			policy: func(s *policyv1beta2.OperatorPolicySpec) {
				s.Versions = []string{"etcd.v0.9.2"}
			},
			plans: []*olm.InstallPlan{running("install-x")},
			want:  ignored,
		},
		"only the Subscription of the dependency is refused": {
			policy: func(s *policyv1beta2.OperatorPolicySpec) {
				s.ComplianceType, s.Subscription.Channel = policyv1beta2.MayHave, "stable"
			},
			plans: []*olm.InstallPlan{running("install-x",
				generating(t, `{"metadata":{"name":"etcd-alpha"},"spec":{"name":"etcd","channel":"alpha"}}`))},
			want: refused,
			message: cannotFinish + `Subscription etcd-alpha to package etcd: spec.channel "alpha" is not allowed by OperatorPolicy policies/no-etcd ` +
				`(subscription/channel): allowed is stable` + ends,
		},
		"the Subscription of the dependency is allowed": {
			policy: func(s *policyv1beta2.OperatorPolicySpec) {
				s.ComplianceType, s.Subscription.Channel = policyv1beta2.MayHave, "stable"
			},
			plans: []*olm.InstallPlan{running("install-x",
				generating(t, `{"metadata":{"name":"etcd-stable"},"spec":{"name":"etcd","channel":"stable"}}`))},
			want: none,
		},
		"the Subscription of the dependency cannot be read": {
			policy: func(s *policyv1beta2.OperatorPolicySpec) { s.ComplianceType = policyv1beta2.MayHave },
			plans:  []*olm.InstallPlan{running("install-x", generating(t, `{"spec":7}`))},
			want:   none,
		},
		"another policy refuses": {
			policy: func(s *policyv1beta2.OperatorPolicySpec) { s.Subscription.Name = "prometheus" },
			plans:  []*olm.InstallPlan{running("install-x")},
			others: []*operatorpolicy.Policy{rules.NewOperatorPolicy(
				installed(func(s *site) { s.policy.Name = "other" }).policy)},
			want: none,
		},
		"the plan is not approved": {
			plans: []*olm.InstallPlan{running("install-x", func(p *olm.InstallPlan) { p.Spec.Approved = false })},
			want:  ignored,
		},
		"the plan has ended": {
			plans: []*olm.InstallPlan{running("install-x",
				func(p *olm.InstallPlan) { p.Status.Phase = olm.PhaseFailed })},
			want: ignored,
		},
		"break-glass approved the plan": {
			plans: []*olm.InstallPlan{running("install-x",
				func(p *olm.InstallPlan) { p.Metadata.Annotations.OverrideReason = "ticket 77" })},
			want: ignored,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := installed(nothing)
			if c.policy != nil {
				c.policy(&s.policy.Spec)
			}
			s.subscriptions = c.subscriptions
			s.plans, s.others = c.plans, c.others
			in := s.input()
			f := findingOf(t, Evaluate(in).Conditions, TypeInstallPlan)
			if diff := cmp.Diff(c.want, rows(Outcome{Conditions: []Condition{f}})); diff != "" {
				t.Error(diff)
			}
			if c.message != "" && f.Message != c.message {
				t.Errorf("it says  %s\nwant     %s", f.Message, c.message)
			}
		})
	}
}
