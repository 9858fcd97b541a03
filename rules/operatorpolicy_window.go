package rules

import (
	"time"

	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// previewAge warns of an age that cannot have the effect that its author will expect.
func previewAge(op *OperatorPolicyInput, p *state.OperatorPolicy, preview func(id verdict.RuleID, what, more string)) {
	switch {
	case p.Age.Holds() && p.MustNotHave:
		preview(RuleOperatorPolicyIneffective,
			"spec.minimumAge has no effect with complianceType mustnothave, which allows no installation",
			"remove it, or write complianceType musthave or mayhave")
	case !p.Age.Holds() && len(op.Policy.Spec.Urgent) > 0:
		preview(RuleOperatorPolicyIneffective, "spec.urgent has no effect without spec.minimumAge",
			"write that, or remove it")
	}
}

// previewCalendar warns of windows and freezes that cannot have the effect that their author will expect.
func previewCalendar(p *state.OperatorPolicy, now time.Time, preview func(id verdict.RuleID, what, more string)) {
	switch {
	case !p.Calendar.Restricts():
		return
	case p.MustNotHave:
		preview(RuleOperatorPolicyIneffective,
			"spec.approvalWindows and spec.freezes have no effect with complianceType mustnothave, which allows no installation",
			"remove them, or write complianceType musthave or mayhave")
		return
	case now.IsZero():
		return
	}
	if when := p.Calendar.At(now); !when.Open && when.Opens.IsZero() {
		preview(RuleOperatorPolicyIneffective,
			"spec.approvalWindows and spec.freezes let no plan be approved within five years",
			"widen spec.approvalWindows, or end spec.freezes earlier")
	}
}
