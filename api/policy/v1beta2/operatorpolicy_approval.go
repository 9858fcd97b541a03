package v1beta2

// UpgradeApproval says whether upgrades of an installed operator are approved.
type UpgradeApproval string

// Values of UpgradeApproval. Read it through
// OperatorPolicySpec.EffectiveUpgradeApproval.
const (
	UpgradeApprovalAutomatic UpgradeApproval = "Automatic"
	UpgradeApprovalNone      UpgradeApproval = "None"
	// UpgradeApprovalNever is an older spelling of None.
	UpgradeApprovalNever UpgradeApproval = "Never"
)

// EffectiveUpgradeApproval is UpgradeApproval with the older spelling Never read as None.
func (s *OperatorPolicySpec) EffectiveUpgradeApproval() UpgradeApproval {
	if s.UpgradeApproval == UpgradeApprovalNever {
		return UpgradeApprovalNone
	}
	return s.UpgradeApproval
}

// PlanApproval says which of the InstallPlans that a policy allows Opgate approves.
type PlanApproval string

// Values of PlanApproval. Read it through OperatorPolicySpec.EffectivePlanApproval.
const (
	PlanApprovalIfRequested PlanApproval = "IfRequested"
	PlanApprovalIfAllowed   PlanApproval = "IfAllowed"
)

// EffectivePlanApproval is PlanApproval or its default: IfAllowed with musthave, else IfRequested, as with mustnothave.
func (s *OperatorPolicySpec) EffectivePlanApproval() PlanApproval {
	switch {
	case s.IsMustNotHave():
	case s.PlanApproval != "":
		return s.PlanApproval
	case s.ComplianceType == MustHave:
		return PlanApprovalIfAllowed
	}
	return PlanApprovalIfRequested
}
