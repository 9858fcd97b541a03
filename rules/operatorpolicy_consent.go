package rules

import (
	"fmt"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
)

// consent is spec.consent of a policy, prepared for judging. Nil holds and warns of nothing.
type consent struct {
	actions      map[change.Class]policyv1beta2.ConsentAction
	firstInstall policyv1beta2.ConsentAction
	accepted     map[string]struct{}
}

// newConsent returns the settings with their defaults: Warn for a class, Ignore for a first installation.
func newConsent(spec *policyv1beta2.Consent) *consent {
	if spec == nil {
		return nil
	}
	c := &consent{actions: operatorpolicy.ConsentClasses(spec), firstInstall: spec.FirstInstall,
		accepted: make(map[string]struct{}, len(spec.Accepted))}
	for class, action := range c.actions {
		if action == "" {
			c.actions[class] = policyv1beta2.ConsentWarn
		}
	}
	if c.firstInstall == "" {
		c.firstInstall = policyv1beta2.ConsentIgnore
	}
	for _, digest := range spec.Accepted {
		c.accepted[digest] = struct{}{}
	}
	return c
}

// classes returns the classes with an action, for a first installation or for an upgrade. Classes that are ignored are
// ignored in both.
func (c *consent) classes(action policyv1beta2.ConsentAction, first bool) []change.Class {
	if c == nil {
		return nil
	}
	var found []change.Class
	for _, class := range change.Reviewable {
		set := c.actions[class]
		if first && set != policyv1beta2.ConsentIgnore {
			set = c.firstInstall
		}
		if set == action {
			found = append(found, class)
		}
	}
	return found
}

// holds reports whether any change is held.
func (c *consent) holds() bool {
	return len(c.classes(policyv1beta2.ConsentHold, false))+len(c.classes(policyv1beta2.ConsentHold, true)) > 0
}

// reviews reports whether changes are compared at all, for a first installation or for an upgrade.
func (c *consent) reviews(first bool) bool {
	return len(c.classes(policyv1beta2.ConsentHold, first))+len(c.classes(policyv1beta2.ConsentWarn, first)) > 0
}

// previewConsent warns of settings of spec.consent that cannot have the effect that their author will expect.
func previewConsent(op *policyv1beta2.OperatorPolicy, p *OperatorPolicy, preview func(id verdict.RuleID, what,
	more string)) {
	c := p.consent
	switch {
	case c == nil:
	case p.MustNotHave:
		preview(RuleOperatorPolicyIneffective,
			"spec.consent has no effect with complianceType mustnothave, which allows no installation",
			"remove it, or write complianceType musthave or mayhave")
	case !c.reviews(false) && !c.reviews(true):
		preview(RuleOperatorPolicyIneffective, "spec.consent ignores every class of changes",
			"write Hold or Warn for one of "+classNames()+", or remove spec.consent")
	case len(op.Spec.Consent.Accepted) > 0 && !c.holds():
		preview(RuleOperatorPolicyIneffective,
			fmt.Sprintf("spec.consent.accepted names %d digests, but no class is Hold", len(c.accepted)),
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
