package rules

import (
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/state"
)

// NewOperatorPolicy prepares an OperatorPolicy for judging. It is total: it keeps whatever it cannot read as a fault.
func NewOperatorPolicy(op *policyv1beta2.OperatorPolicy) *state.OperatorPolicy {
	return state.NewOperatorPolicy(op, bundle.Exceptable())
}

// CompletedOperatorPolicy prepares a policy that was completed from cluster state; written is the policy as it is
// stored. Problems, full sentences, are why it could not be completed in part; while there are any, what it governs is
// held.
func CompletedOperatorPolicy(
	written, completed *policyv1beta2.OperatorPolicy, problems []string,
) *state.OperatorPolicy {
	return state.CompletedOperatorPolicy(written, completed, problems, bundle.Exceptable())
}
