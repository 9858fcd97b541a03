package v1beta2_test

import (
	"testing"

	"github.com/opgate/opgate/api/policy/v1beta2"
)

func TestIsEnforced(t *testing.T) {
	for action, want := range map[v1beta2.RemediationAction]bool{
		v1beta2.Enforce: true, "Enforce": true, "ENFORCE": true,
		v1beta2.Inform: false, "Inform": false, "INFORM": false, "": false, "of": true,
	} {
		spec := v1beta2.OperatorPolicySpec{RemediationAction: action}
		if got := spec.IsEnforced(); got != want {
			t.Errorf("remediationAction %q: IsEnforced is %t, want %t", action, got, want)
		}
	}
}

func TestIsMustNotHave(t *testing.T) {
	for complianceType, want := range map[v1beta2.ComplianceType]bool{
		v1beta2.MustNotHave: true, v1beta2.MustHave: false, "": false,
	} {
		spec := v1beta2.OperatorPolicySpec{ComplianceType: complianceType}
		if got := spec.IsMustNotHave(); got != want {
			t.Errorf("complianceType %q: IsMustNotHave is %t, want %t", complianceType, got, want)
		}
	}
}

func TestEffectivePlanApproval(t *testing.T) {
	const requested, allowed = v1beta2.PlanApprovalIfRequested, v1beta2.PlanApprovalIfAllowed
	for complianceType, want := range map[v1beta2.ComplianceType]map[v1beta2.PlanApproval]v1beta2.PlanApproval{
		v1beta2.MustHave:    {"": allowed, requested: requested, allowed: allowed, "Always": "Always"},
		v1beta2.MayHave:     {"": requested, requested: requested, allowed: allowed, "Always": "Always"},
		v1beta2.MustNotHave: {"": requested, requested: requested, allowed: requested, "Always": requested},
		"":                  {"": requested},
	} {
		for written, want := range want {
			spec := v1beta2.OperatorPolicySpec{ComplianceType: complianceType, PlanApproval: written}
			if got := spec.EffectivePlanApproval(); got != want {
				t.Errorf("planApproval %q of %q reads as %q, want %q", written, complianceType, got, want)
			}
		}
	}
}

func TestEffectiveUpgradeApproval(t *testing.T) {
	for written, want := range map[v1beta2.UpgradeApproval]v1beta2.UpgradeApproval{
		v1beta2.UpgradeApprovalAutomatic: v1beta2.UpgradeApprovalAutomatic,
		v1beta2.UpgradeApprovalNone:      v1beta2.UpgradeApprovalNone,
		v1beta2.UpgradeApprovalNever:     v1beta2.UpgradeApprovalNone,
		"":                               "",
	} {
		spec := v1beta2.OperatorPolicySpec{UpgradeApproval: written}
		if got := spec.EffectiveUpgradeApproval(); got != want {
			t.Errorf("upgradeApproval %q reads as %q, want %q", written, got, want)
		}
	}
}
