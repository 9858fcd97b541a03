package rules

import (
	"slices"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleBundleApprovalWindow is on when plans are approved.
const RuleBundleApprovalWindow verdict.RuleID = "bundle/approval-window"

var bundleApprovalWindow = verdict.Rule{ID: RuleBundleApprovalWindow, Outcomes: verdict.Holds, Override: true,
	Summary: "no approval window of the policy is open, or one of its freezes is in force"}

// heldWindow holds what is approved outside of the windows of a policy (R-AP-9).
func heldWindow(in *PlanInput, c *Bundle, p *OperatorPolicy) verdict.Finding {
	return outsideWindow(in.Now, text.Name(c.name), p)
}

// outsideWindow holds something outside of the windows of a policy. The message names no time but those of the policy,
// so that it is the same until one of them comes: it is in events and in the status.
func outsideWindow(now time.Time, what string, p *OperatorPolicy) verdict.Finding {
	if p.MustNotHave || !p.calendar.Restricts() || p.faults != "" {
		return verdict.Finding{}
	}
	held := verdict.Finding{Decision: verdict.Hold, What: what + " is held"}
	if now.IsZero() {
		held.Accepted = "waits until the time is known, for spec.approvalWindows and spec.freezes"
		return held
	}
	state := p.calendar.At(now)
	if state.Open {
		return verdict.Finding{}
	}
	frozen := ""
	if f := state.Freeze; f != nil {
		frozen = "approvals are frozen until " + f.End.Format(time.RFC3339)
		if f.Reason != "" {
			frozen += " (" + text.Quote(f.Reason) + ")"
		}
	}
	opens := state.Opens.Format(time.RFC3339)
	switch {
	case state.Opens.IsZero():
		held.Accepted = "no approval window opens within five years; change spec.approvalWindows or spec.freezes"
	case state.Window == nil && state.Opens.Equal(state.Freeze.End):
		held.Accepted = frozen
		return held
	case state.Window == nil:
		held.Accepted = "approvals are allowed at " + opens
	default:
		held.Accepted = "waits for the next approval window, which is open at " + opens + " (cron " +
			state.Window.String() + ")"
	}
	if frozen != "" {
		held.Accepted = frozen + "; " + held.Accepted
	}
	return held
}

// NextChange returns when the time alone changes what holds plans here: an approval window opens, a freeze ends or a
// version is old enough for which a plan waits, or an override or a consent of a plan ends; zero if none of that will
// be.
func (n *Namespace) NextChange(now time.Time) time.Time {
	next := n.nextEnd(now)
	if !slices.ContainsFunc(n.Plans(), n.Waits) {
		return next
	}
	if at := n.nextAge(now); next.IsZero() || !at.IsZero() && at.Before(next) {
		next = at
	}
	for _, p := range n.enforcing() {
		if p.MustNotHave || !p.calendar.Restricts() || p.faults != "" {
			continue
		}
		if state := p.calendar.At(now); !state.Open {
			if at := state.Changes(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return next
}
