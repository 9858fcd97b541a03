package rules

import (
	"time"

	"github.com/opgate/opgate/rules/verdict"
)

// previewCalendar warns of windows and freezes that cannot have the effect that their author will expect.
func previewCalendar(p *OperatorPolicy, now time.Time, preview func(id verdict.RuleID, what, more string)) {
	switch {
	case !p.calendar.Restricts():
		return
	case p.MustNotHave:
		preview(RuleOperatorPolicyIneffective, "spec.approvalWindows and spec.freezes have no effect with complianceType mustnothave, which allows no installation",
			"remove them, or write complianceType musthave or mayhave")
		return
	case now.IsZero():
		return
	}
	if state := p.calendar.At(now); !state.Open && state.Opens.IsZero() {
		preview(RuleOperatorPolicyIneffective, "spec.approvalWindows and spec.freezes let no plan be approved within five years",
			"widen spec.approvalWindows, or end spec.freezes earlier")
	}
}
