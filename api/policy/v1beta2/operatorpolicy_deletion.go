package v1beta2

// DeletionAction says whether what a policy governs may be deleted.
type DeletionAction string

// Values of DeletionAction. Read it through OperatorPolicySpec.EffectiveDeletion.
const (
	DeletionAllow   DeletionAction = "Allow"
	DeletionConfirm DeletionAction = "Confirm"
	DeletionDeny    DeletionAction = "Deny"
)

// DeleteConfirmedAnnotation is the annotation on an object by which a user confirms that it is deleted. Its value is
// the UID of the object, so that it confirms nothing for an object that is created again under the name.
const DeleteConfirmedAnnotation = "opgate.io/delete-confirmed"

// EffectiveDeletion is Deletion of an enforced policy: Allow where the field is absent or the policy informs, and Deny
// for a value that is none of the known ones, which must not open what it closes.
func (s *OperatorPolicySpec) EffectiveDeletion() DeletionAction {
	switch {
	case !s.IsEnforced() || s.Deletion == "" || s.Deletion == DeletionAllow:
		return DeletionAllow
	case s.Deletion == DeletionConfirm:
		return DeletionConfirm
	}
	return DeletionDeny
}
