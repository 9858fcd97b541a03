package compliance

import (
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// reviewed is an upgrade of etcd that asks for rights, under a policy with consent.
func reviewed(p *olm.InstallPlan, consent policyv1beta2.Consent) given {
	return func(in *fixture) {
		upgrading(p, p.Metadata.Name)(in)
		in.Policy.Spec.Consent = &consent
		installed := state.Installed{Bundle: olm.Bundle{Name: "etcd.v1.2.0", Package: "etcd", Version: "1.2.0"}}
		changes := func(plan *olm.InstallPlan, replacements []state.Replacement) *state.PlanChanges {
			return &state.PlanChanges{Plan: plan.ContentsDigest(), Replacements: replacements,
				ByCSV: map[string]*change.Set{"etcd.v1.3.0": upgradeOfEtcd()}}
		}
		in.contents.Policies = []*operatorpolicy.Policy{rules.NewOperatorPolicy(in.Policy)}
		in.contents.CSVs = []state.Installed{installed}
		in.read = func(n *state.Namespace) *state.Namespace { return carrier.Read(n, nil, changes) }
	}
}

func upgradeOfEtcd() *change.Set {
	return &change.Set{CSV: "etcd.v1.3.0", Package: "etcd", Version: "1.3.0", From: "etcd.v1.2.0",
		Differences: []change.Difference{{Class: change.Permissions, Text: "cluster-wide: get on secrets"}}}
}

func TestConsentInStatus(t *testing.T) {
	digest := upgradeOfEtcd().Digest()
	upgrade := func(phase string, edit ...func(*olm.InstallPlan)) *olm.InstallPlan {
		p := aPlan("install-b", 2, aCSV("etcd", "1.3.0"))
		p.Status.BundleLookups[0].Catalog = olm.Catalog{Namespace: "olm", Name: "community"}
		p.Spec.Approved, p.Status.Phase = phase != olm.PhaseRequiresApproval, phase
		for _, e := range edit {
			e(p)
		}
		return p
	}
	annotated := func(p *olm.InstallPlan) {
		p.Metadata.Annotations.Consent, p.Metadata.Annotations.ConsentBy = digest, "alice"
	}
	hold := policyv1beta2.Consent{Permissions: policyv1beta2.ConsentHold}
	accepted := policyv1beta2.Consent{Permissions: policyv1beta2.ConsentHold, Accepted: []string{digest}}
	manual := []string{"update Subscription shop/etcd"} // Opgate approves instead of OLM
	const (
		waits = "An upgrade to etcd.v1.3.0 is available on the stable-1.2 channel, the InstallPlan shop/install-b for [etcd.v1.3.0] awaits approval"
		runs  = "the InstallPlan shop/install-b is installing"
	)
	for _, s := range []scenario{
		{
			name: "consent by the policy", given: []given{enforced, reviewed(upgrade(olm.PhaseInstalling), accepted)},
			says: map[string]string{TypeInstallPlan: runs + "; consent: etcd.v1.3.0 " + digest +
				" by spec.consent.accepted of OperatorPolicy policies/etcd-policy"},
			actions: manual,
		},
		{
			name: "consent by a user", given: []given{enforced,
				reviewed(upgrade(olm.PhaseInstalling, annotated), hold)},
			says: map[string]string{TypeInstallPlan: runs + "; consent: etcd.v1.3.0 " + digest +
				` by annotation opgate.io/consent of user "alice" for OperatorPolicy policies/etcd-policy`},
			actions: manual,
		},
		{
			name: "the plan was approved a moment ago",
			given: []given{enforced,
				reviewed(upgrade(olm.PhaseRequiresApproval, func(p *olm.InstallPlan) { approved(p) }), accepted)},
			says: map[string]string{TypeInstallPlan: "the InstallPlan shop/install-b for etcd.v1.3.0 was approved; consent: etcd.v1.3.0 " + digest +
				" by spec.consent.accepted of OperatorPolicy policies/etcd-policy"},
			actions: manual,
		},
		{
			name: "the plan has finished", given: []given{enforced,
				reviewed(upgrade(olm.PhaseComplete, annotated), hold)},
			says:    map[string]string{TypeInstallPlan: "no InstallPlans requiring approval were found; annotation opgate.io/consent consents to " + digest + ` for user "alice"`},
			actions: manual,
		},
		{
			name: "consent without an approval", given: []given{enforced,
				reviewed(upgrade(olm.PhaseRequiresApproval), accepted)},
			says:    map[string]string{TypeInstallPlan: waits},
			actions: manual,
		},
		{
			name: "what holds the plan is a blocker",
			given: []given{enforced, reviewed(upgrade(olm.PhaseRequiresApproval), hold), func(in *fixture) {
				in.Approvals["install-b"] = Approval{Reasons: []verdict.Reason{{Message: "etcd.v1.3.0 is held"}}}
			}},
			says:    map[string]string{TypeInstallPlan: waits + "; etcd.v1.3.0 is held"},
			actions: manual,
		},
		{
			name: "a change that is only warned of", given: []given{enforced,
				reviewed(upgrade(olm.PhaseRequiresApproval), policyv1beta2.Consent{})},
			says: map[string]string{TypeInstallPlan: waits +
				"; etcd.v1.3.0 passes with a warning by OperatorPolicy policies/etcd-policy (bundle/consent): to end the warning, accept " +
				digest + " in spec.consent.accepted, or annotate the plan with opgate.io/consent; it changes permissions: cluster-wide: get on secrets"},
		},
		{
			name: "a policy that informs", given: []given{reviewed(upgrade(olm.PhaseRequiresApproval), hold)},
			says: map[string]string{TypeInstallPlan: waits +
				"; etcd.v1.3.0 is held by OperatorPolicy policies/etcd-policy, which only informs (bundle/consent): accept " +
				digest + " in spec.consent.accepted, or annotate the plan with opgate.io/consent; it changes permissions: cluster-wide: get on secrets"},
		},
	} {
		s.run(t)
	}
}
