package v1beta2

import "strings"

// IsEnforced reports whether the policy may refuse and write. Only inform, in any case, and leaving the field
// out make it a policy that informs: an unknown value must not disable a policy.
func (s *OperatorPolicySpec) IsEnforced() bool {
	return s.RemediationAction != "" && !strings.EqualFold(string(s.RemediationAction), string(Inform))
}

// IsMustNotHave reports whether the policy wants the operator to be absent.
func (s *OperatorPolicySpec) IsMustNotHave() bool {
	return s.ComplianceType == MustNotHave
}
