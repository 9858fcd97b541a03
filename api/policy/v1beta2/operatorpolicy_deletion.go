package v1beta2

// DeletionAction says whether what a policy governs, or a Constraint is about, may be deleted.
type DeletionAction string

// Values of DeletionAction. Read it through OperatorPolicySpec.EffectiveDeletion.
const (
	DeletionAllow   DeletionAction = "Allow"
	DeletionConfirm DeletionAction = "Confirm"
	DeletionDeny    DeletionAction = "Deny"
)

// Effective is Allow for no value, and Deny for one that is none of the known ones, which must not open what it closes.
func (a DeletionAction) Effective() DeletionAction {
	switch a {
	case "", DeletionAllow:
		return DeletionAllow
	case DeletionConfirm, DeletionDeny:
		return a
	}
	return DeletionDeny
}

// EffectiveDeletion is what Deletion means: Allow for a policy that informs.
func (s *OperatorPolicySpec) EffectiveDeletion() DeletionAction {
	if !s.IsEnforced() {
		return DeletionAllow
	}
	return s.Deletion.Effective()
}
