package state

import (
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// Consent is spec.consent of a policy, prepared for judging. Nil holds and warns of nothing.
type Consent struct {
	actions      map[change.Class]policyv1beta2.ConsentAction
	firstInstall policyv1beta2.ConsentAction
	Accepted     map[string]struct{}
}

// newConsent returns the settings with their defaults: Warn for a class, Ignore for a first installation.
func newConsent(spec *policyv1beta2.Consent) *Consent {
	if spec == nil {
		return nil
	}
	c := &Consent{actions: operatorpolicy.ConsentClasses(spec), firstInstall: spec.FirstInstall,
		Accepted: make(map[string]struct{}, len(spec.Accepted))}
	for class, action := range c.actions {
		if action == "" {
			c.actions[class] = policyv1beta2.ConsentWarn
		}
	}
	if c.firstInstall == "" {
		c.firstInstall = policyv1beta2.ConsentIgnore
	}
	for _, digest := range spec.Accepted {
		c.Accepted[digest] = struct{}{}
	}
	return c
}

// Classes returns the classes with an action, for a first installation or for an upgrade. Classes that are ignored are
// ignored in both.
func (c *Consent) Classes(action policyv1beta2.ConsentAction, first bool) []change.Class {
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

// Holds reports whether any change is held.
func (c *Consent) Holds() bool {
	return len(c.Classes(policyv1beta2.ConsentHold, false))+len(c.Classes(policyv1beta2.ConsentHold, true)) > 0
}

// Reviews reports whether changes are compared at all, for a first installation or for an upgrade.
func (c *Consent) Reviews(first bool) bool {
	return len(c.Classes(policyv1beta2.ConsentHold, first))+len(c.Classes(policyv1beta2.ConsentWarn, first)) > 0
}

// ReviewsChanges reports whether a policy may hold or warn of changes.
func (p *OperatorPolicy) ReviewsChanges() bool {
	return !p.MustNotHave && p.Unreadable() == "" && (p.Consent.Reviews(false) || p.Consent.Reviews(true))
}
