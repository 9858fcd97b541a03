package verdict

import (
	"strings"
)

// RuleID names a rule in messages, metrics, documentation and tests. The part before the slash is the kind of object
// that is judged, "bundle" for what an object of any kind brings, "deletion" for the end of one, or "gate" where no
// policy is read at all; policy/unreadable alone is about another kind, the OperatorPolicy that should judge. The
// constant of a rule spells its ID: RulePlanFrozen is plan/frozen, and bundle.RuleVersion is bundle/version.
type RuleID string

// OfGate reports whether a rule is about the gate or the review, not about the object.
func (id RuleID) OfGate() bool { return strings.HasPrefix(string(id), "gate/") }

// ForDeletions reports whether a rule is on deletions: the API server judges by it, and no webhook does.
func (id RuleID) ForDeletions() bool { return strings.HasPrefix(string(id), "deletion/") }

// Outcome is the effect of a rule under an enforcing policy. Under an informing policy it is always a warning.
type Outcome string

// The outcomes.
const (
	// OutcomeDeny refuses for as long as the policy exists.
	OutcomeDeny Outcome = "Deny"
	// OutcomeHold refuses until something else has happened.
	OutcomeHold Outcome = "Hold"
	// OutcomeWarn never refuses.
	OutcomeWarn Outcome = "Warn"
)

// Outcomes are the possible effects of a rule, the most common first.
type Outcomes []Outcome

// String returns them as a list.
func (o Outcomes) String() string {
	words := make([]string, len(o))
	for i := range o {
		words[i] = string(o[i])
	}
	return strings.Join(words, ",")
}

// What the outcomes of a rule can be.
var (
	Denies        = Outcomes{OutcomeDeny}
	Holds         = Outcomes{OutcomeHold}
	Warns         = Outcomes{OutcomeWarn}
	DeniesOrHolds = Outcomes{OutcomeDeny, OutcomeHold}
	DeniesOrWarns = Outcomes{OutcomeDeny, OutcomeWarn}
	HoldsOrWarns  = Outcomes{OutcomeHold, OutcomeWarn}
	AnyOutcome    = Outcomes{OutcomeDeny, OutcomeHold, OutcomeWarn}
)

// Rule is all that is known of one rule apart from how it judges: commands, documentation, the table of the API server
// and tests read it here.
type Rule struct {
	ID       RuleID
	Outcomes Outcomes
	// Summary is one sentence: when the rule applies.
	Summary string
	// Override reports whether a user with the verb override may set it aside (R-AP-6). That is so for rules on what a
	// plan brings and an OperatorGroup changes, not for those that protect judged contents from changes.
	Override bool
	// SetsAside reports whether its warnings are refusals that a user with the verb override has set aside.
	SetsAside bool
	// Backstop reports whether the API server itself holds a part of it as well (package backstop).
	Backstop bool
	// Edit proposes the edit of a policy that ends a refusal; nil if none does.
	Edit Edit
}
