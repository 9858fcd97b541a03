package rules

import (
	"slices"
	"strings"
)

// Redacted returns what a caller may learn that has not proved to be the API server (threat G20): the decision, the rules behind
// it and the fields that they are about. Policies, Constraints, other objects, rights of users and what would be accepted are left
// out, and so is every warning: all of these are composed from objects that the caller may not be allowed to read. Changes stay,
// without their messages, since they are part of the object under review.
func (v *Verdict) Redacted() Verdict {
	public := Verdict{Object: v.Object, Decision: v.Decision}
	for _, r := range v.Reasons {
		reason := Reason{Rule: r.Rule, Decision: r.Decision, Field: r.Field, Message: redactedMessage(r)}
		// How many policies refuse is not the caller's to know either.
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
	if strings.HasPrefix(string(r.Rule), "gate/") { // these are about the gate or the review, no object is asked
		return r.Message
	}
	what := "it is not allowed"
	if r.Decision == Hold {
		what = "it is not allowed yet"
	}
	if r.Field != "" {
		what = r.Field + ": " + what
	}
	return sentence(what, r.Rule, "the caller is not known to be the API server, so no details are shown")
}
