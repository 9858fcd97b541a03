package verdict

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
)

// Notes are the texts of events, in the words of refusals. They are not shortened: an event has as much of one as the API
// admits.

// Note returns why a write was refused.
func (v *Verdict) Note() string { return Note(v.Reasons) }

// ApprovalNote returns by what an approved plan is allowed: the consents and exceptions first, since nothing else in
// the cluster keeps them for a plan that was deleted. By is the user who approved it, empty for the loop.
func (v *Verdict) ApprovalNote(by string) string {
	var parts []string
	if by != "" {
		parts = append(parts, "by user "+text.Quote(by))
	}
	for i := range v.Consents {
		parts = append(parts, "consent to "+v.Consents[i].String()+" ("+string(v.Consents[i].Rule)+")")
	}
	for i := range v.Warnings {
		if v.Warnings[i].excepted {
			parts = append(parts, v.Warnings[i].Message)
		}
	}
	for i := range v.CSVs {
		parts = append(parts, v.CSVs[i].allowedBy())
	}
	return noteOf(parts)
}

// allowedBy returns why a ClusterServiceVersion does not keep a plan from being approved.
func (c *CSV) allowedBy() string {
	switch {
	case len(c.By) == 0:
		return text.Name(c.CSV) + " is refused by no policy"
	case c.Disposition == Required:
		return text.Name(c.CSV) + " is required by " + text.Names(c.By, MaxListed)
	default:
		return text.Name(c.CSV) + " is allowed by " + text.Join(c.By, MaxListed)
	}
}

// OverrideNote returns which user overrode a refusal, and what refused it; "" if the verdict was not overridden.
func (v *Verdict) OverrideNote(by string) string {
	overridden := v.Overrides()
	if len(overridden) == 0 {
		return ""
	}
	return "by user " + text.Quote(by) + ": " + Note(overridden)
}

// Policy returns the policy or Constraint that refuses, or whose refusal was overridden, by the first reason that has a
// single one; zero if none has.
func (v *Verdict) Policy() PolicyRef {
	reasons := v.Reasons
	if v.Decision == Allow {
		reasons = v.Overrides()
	}
	for i := range reasons {
		if reasons[i].From != (PolicyRef{}) {
			return reasons[i].From
		}
	}
	return PolicyRef{}
}

// Note joins the messages of reasons.
func Note(reasons []Reason) string {
	messages := make([]string, len(reasons))
	for i := range reasons {
		messages[i] = reasons[i].Message
	}
	return noteOf(messages)
}

// noteOf joins texts. A hostile object may cause any number of these; beyond a readable number they are counted.
func noteOf(texts []string) string {
	const most = 20
	if more := len(texts) - most; more > 0 {
		texts = append(texts[:most:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// Redacted returns what a caller that is not proven to be the API server may learn: the decision, its
// rules and their fields. It omits policies, Constraints, other objects, rights of users, what would be accepted, and
// every warning: all of these are derived from objects that the caller may not be allowed to read. Changes stay,
// without their messages, since they are part of the object under review.
func (v *Verdict) Redacted() Verdict {
	public := Verdict{Object: v.Object, Decision: v.Decision}
	for _, r := range v.Reasons {
		reason := Reason{Rule: r.Rule, Decision: r.Decision, Field: r.Field, Message: redactedMessage(r)}
		// The number of refusing policies must not be disclosed either.
		if !slices.ContainsFunc(public.Reasons, func(other Reason) bool { return sameReason(other, reason) }) {
			public.Reasons = append(public.Reasons, reason)
		}
	}
	for _, c := range v.Changes {
		public.Changes = append(public.Changes, Change{Rule: c.Rule, Path: c.Path, Value: c.Value, Remove: c.Remove})
	}
	return public
}

func redactedMessage(r Reason) string {
	if r.Rule.OfGate() { // these read no object
		return r.Message
	}
	what := "it is not allowed"
	if r.Decision == Hold {
		what = "it is not allowed yet"
	}
	if r.Field != "" {
		what = r.Field + ": " + what
	}
	return Sentence(what, r.Rule, "the caller is not known to be the API server, so no details are shown")
}

// Consent is one by which a change passes that a policy holds.
type Consent struct {
	CSV, Digest string
	// Rule is the one that holds the change without it.
	Rule RuleID
	// Policy is the policy that holds the change without it, as used in reasons.
	Policy string
	// From is where it is given: spec.consent.accepted, or annotation opgate.io/consent. By is the user of the latter,
	// empty if not recorded. Until is when it ends, as " until <time>"; empty if it does not.
	From, By, Until string
}

// String returns the consent in words: "etcd.v0.9.4 sha256:… by spec.consent.accepted of OperatorPolicy policies/etcd".
func (c *Consent) String() string {
	by := c.From + " of " + c.Policy
	if c.From != AcceptedPath {
		by = "annotation " + c.From
		if c.By != "" {
			by += " of user " + text.Quote(c.By)
		}
		by += c.Until + " for " + c.Policy
	}
	return text.Name(c.CSV) + " " + c.Digest + " by " + by
}

// AcceptedPath is the field of a policy by which it consents: the From of a Consent.
const AcceptedPath = "spec.consent.accepted"
