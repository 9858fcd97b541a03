package bundle

import (
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleApprovalWindow is on when plans are approved.
const RuleApprovalWindow verdict.RuleID = "bundle/approval-window"

var bundleApprovalWindow = verdict.Rule{ID: RuleApprovalWindow, Outcomes: verdict.Holds, Override: true,
	Summary: "no approval window of the policy is open, or one of its freezes is in force"}

// heldWindow holds what is approved outside of the windows of a policy (R-AP-9).
func heldWindow(in *Input, c *carrier.Bundle, p *state.OperatorPolicy) verdict.Finding {
	return OutsideWindow(in.Now, text.Name(c.Name), p)
}

// OutsideWindow holds something outside of the windows of a policy. The message names no time but those of the policy,
// so that it is the same until one of them comes: it is in events and in the status.
func OutsideWindow(now time.Time, what string, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || !p.Calendar.Restricts() || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	held := verdict.Finding{Decision: verdict.Hold, What: what + " is held"}
	if now.IsZero() {
		held.Accepted = "waits until the time is known, for spec.approvalWindows and spec.freezes"
		return held
	}
	when := p.Calendar.At(now)
	if when.Open {
		return verdict.Finding{}
	}
	frozen := ""
	if f := when.Freeze; f != nil {
		frozen = "approvals are frozen until " + f.End.Format(time.RFC3339)
		if f.Reason != "" {
			frozen += " (" + text.Quote(f.Reason) + ")"
		}
	}
	opens := when.Opens.Format(time.RFC3339)
	switch {
	case when.Opens.IsZero():
		held.Accepted = "no approval window opens within five years; change spec.approvalWindows or spec.freezes"
	case when.Window == nil && when.Opens.Equal(when.Freeze.End):
		held.Accepted = frozen
		return held
	case when.Window == nil:
		held.Accepted = "approvals are allowed at " + opens
	default:
		held.Accepted = "waits for the next approval window, which is open at " + opens + " (cron " +
			when.Window.String() + ")"
	}
	if frozen != "" {
		held.Accepted = frozen + "; " + held.Accepted
	}
	return held
}
