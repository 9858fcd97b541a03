package rules

import (
	"fmt"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// previewConsent warns of settings of spec.consent that cannot have the effect that their author will expect.
func previewConsent(op *policyv1beta2.OperatorPolicy, p *state.OperatorPolicy, preview func(id verdict.RuleID, what,
	more string)) {
	c := p.Consent
	switch {
	case c == nil:
	case p.MustNotHave:
		preview(RuleOperatorPolicyIneffective,
			"spec.consent has no effect with complianceType mustnothave, which allows no installation",
			"remove it, or write complianceType musthave or mayhave")
	case !c.Reviews(false) && !c.Reviews(true):
		preview(RuleOperatorPolicyIneffective, "spec.consent ignores every class of changes",
			"write Hold or Warn for one of "+classNames()+", or remove spec.consent")
	case len(op.Spec.Consent.Accepted) > 0 && !c.Holds():
		preview(RuleOperatorPolicyIneffective,
			fmt.Sprintf("spec.consent.accepted names %d digests, but no class is Hold", len(c.Accepted)),
			"what is accepted is only not warned of; write Hold for the classes that need consent")
	}
}

func classNames() string {
	names := make([]string, len(change.Reviewable))
	for i, class := range change.Reviewable {
		names[i] = string(class)
	}
	return text.Names(names, verdict.MaxListed)
}
