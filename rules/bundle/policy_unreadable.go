package bundle

import (
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RulePolicyUnreadable is about the governing OperatorPolicy, not about the judged object.
const RulePolicyUnreadable verdict.RuleID = "policy/unreadable"

var policyUnreadable = verdict.Rule{ID: RulePolicyUnreadable, Outcomes: verdict.Holds, Override: true, Backstop: true,
	Summary: "the governing policy holds template text or a value that cannot be read, so nothing it governs is let through"}

// Unreadable holds what a policy with faults governs.
func Unreadable(p *state.OperatorPolicy, governed string) verdict.Finding {
	if p.Unreadable() == "" {
		return verdict.Finding{}
	}
	return verdict.Finding{Decision: verdict.Hold, What: governed + " is held",
		Accepted: "waits until the policy can be read: " + p.Unreadable()}
}
