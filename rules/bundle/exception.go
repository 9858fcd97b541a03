package bundle

import (
	"time"

	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/exception"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleException is on refusals that spec.exceptions of a policy or a Constraint sets aside.
const RuleException verdict.RuleID = "bundle/exception"

var bundleException = verdict.Rule{ID: RuleException, Outcomes: verdict.Warns,
	Summary: "what a rule refuses is set aside by an exception of the policy or the Constraint, until that ends"}

// Exceptable returns the IDs of the rules that an exception of a policy may name, in reading order: those by which one
// policy judges what is installed and that override sets aside. A policy that cannot be read has no exceptions that
// could be read.
func Exceptable() []string {
	var ids []string
	add := func(r verdict.Rule) {
		if r.Override && r.ID != RulePolicyUnreadable {
			ids = append(ids, string(r.ID))
		}
	}
	for _, check := range contentChecks {
		add(check.Rule)
	}
	for _, check := range progressChecks {
		add(check.Rule)
	}
	add(bundleConsent)
	add(bundleContents)
	return ids
}

// recordOn records a finding of a policy on a bundle. If an exception sets the rule aside, that is a warning, which
// names the exception before the refusal.
func recordOn(
	p *state.OperatorPolicy, c *carrier.Bundle, now time.Time, v *verdict.Verdict, id verdict.RuleID, f verdict.Finding,
) {
	if f.Silent() {
		return
	}
	digest, _ := c.Digest() // where it is not known, names with a digest do not count
	if e := p.Exceptions().For(id, c.Name, digest, p.TargetNamespace, now); e != nil {
		setAside(v, e, id, p.Ref(), f)
		return
	}
	p.Record(v, id, f)
}

// setAside records a finding that an exception of its source sets aside.
func setAside(
	v *verdict.Verdict, e *exception.Exception, id verdict.RuleID, from verdict.PolicyRef, f verdict.Finding,
) {
	v.WarnExcepted(verdict.Reason{Rule: RuleException, Source: from.String(), From: from, Field: f.Field,
		Message: verdict.Sentence("set aside by "+e.Text(from.String()), RuleException,
			verdict.Sentence(f.What+" by "+from.String(), id, f.Accepted))})
}

// recordConstraintOn records that a bundle violates a Constraint. If an exception sets that aside, it is a warning. A
// Constraint that cannot be read has no exceptions.
func recordConstraintOn(
	n *state.Namespace, c *carrier.Bundle, now time.Time, v *verdict.Verdict, what string, f *constraint.Finding,
) {
	digest, _ := c.Digest() // where it is not known, names with a digest do not count
	e := f.Definition.Exceptions.For(RuleConstraint, c.Name, digest, n.Name(), now)
	if e == nil || f.Constraint == nil {
		state.RecordConstraint(v, RuleConstraint, what, f)
		return
	}
	setAside(v, e, RuleConstraint, state.ConstraintRef(f.Definition), state.ConstraintFinding(what, f))
}
