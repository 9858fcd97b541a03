package rules

import (
	"github.com/opgate/opgate/rules/verdict"
)

const (
	RuleGateNotReady    verdict.RuleID = "gate/not-ready"
	RuleGateStale       verdict.RuleID = "gate/stale"
	RuleGateUnreadable  verdict.RuleID = "gate/unreadable"
	RuleGateUnexpected  verdict.RuleID = "gate/unexpected"
	RuleGateOLMIdentity verdict.RuleID = "gate/olm-identity"
	RuleGateInternal    verdict.RuleID = "gate/internal"
)

// gateRules are those by which the gate refuses before any policy is read. Package admission applies them.
var gateRules = []verdict.Rule{
	{ID: RuleGateNotReady, Outcomes: verdict.Holds,
		Summary: "the gate has not read all policies and operators, or verified OLM's identity, yet, a few seconds after its start"},
	{ID: RuleGateStale, Outcomes: verdict.Holds,
		Summary: "a watch of the gate has shown no progress for longer than --max-staleness, or not what the gate itself wrote: policies and " +
			"operators may have changed since"},
	{ID: RuleGateUnreadable, Outcomes: verdict.Denies,
		Summary: "the review, or the object in it, cannot be read"},
	{ID: RuleGateUnexpected, Outcomes: verdict.Denies,
		Summary: "the API server asks about an operation or a subresource that this version of the gate does not know"},
	{ID: RuleGateOLMIdentity, Outcomes: verdict.Holds,
		Summary: "the write has OLM's user name, but the account is not trusted as OLM's, or it has the form of OLM's, by a user that is not configured as OLM: " +
			"it is judged like any other write"},
	{ID: RuleGateInternal, Outcomes: verdict.Holds,
		Summary: "the gate panicked while it judged; its log has the stack"},
}
