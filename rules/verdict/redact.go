package verdict

import (
	"slices"
)

// Redacted returns what a caller that is not proven to be the API server may learn (threat G20): the decision, its
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
