package rules

// The rules by which the gate refuses before any policy is read. Package admission applies them.
const (
	RuleGateNotReady    RuleID = "gate/not-ready"
	RuleGateStale       RuleID = "gate/stale"
	RuleGateUnreadable  RuleID = "gate/unreadable"
	RuleGateUnexpected  RuleID = "gate/unexpected"
	RuleGateOLMIdentity RuleID = "gate/olm-identity"
	RuleGateInternal    RuleID = "gate/internal"
)

var (
	gateNotReady = Rule{ID: RuleGateNotReady, Outcomes: hold,
		Summary: "the gate has not read all policies and operators, or verified OLM's identity, yet, a few seconds after its start"}
	gateStale = Rule{ID: RuleGateStale, Outcomes: hold,
		Summary: "a watch of the gate has shown no progress for longer than --max-staleness, or not what the gate itself wrote: policies and " +
			"operators may have changed since"}
	gateUnreadable = Rule{ID: RuleGateUnreadable, Outcomes: deny,
		Summary: "the review, or the object in it, cannot be read"}
	gateUnexpected = Rule{ID: RuleGateUnexpected, Outcomes: deny,
		Summary: "the API server asks about an operation or a subresource that this version of the gate does not know"}
	gateOLMIdentity = Rule{ID: RuleGateOLMIdentity, Outcomes: hold,
		Summary: "the write has OLM's user name, but the account is not trusted as OLM's, or it has the form of OLM's, by a user that is not configured as OLM: " +
			"it is judged like any other write"}
	gateInternal = Rule{ID: RuleGateInternal, Outcomes: hold,
		Summary: "the gate panicked while it judged; its log has the stack"}
)
