package bundle

import (
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// recordOn records a finding of a policy on a bundle. If an exception sets the rule aside, that is a warning, which
// names the exception before the refusal.
func recordOn(
	p *operatorpolicy.Policy, c *carrier.Bundle, now time.Time, v *verdict.Verdict, id verdict.RuleID, f verdict.Finding,
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
	v *verdict.Verdict, e *operatorpolicy.Exception, id verdict.RuleID, from verdict.PolicyRef, f verdict.Finding,
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
	e := n.ExceptionsOf(f.Definition, c.Package, c.Catalogs...).For(RuleConstraint, c.Name, digest, n.Name(), now)
	if e == nil || f.Constraint == nil {
		state.RecordConstraint(v, RuleConstraint, what, f)
		return
	}
	setAside(v, e, RuleConstraint, state.ConstraintRef(f.Definition), state.ConstraintFinding(what, f))
}

// judgeConstraints judges a bundle by the Constraints of the cluster.
func (j *Plan) judgeConstraints(c *carrier.Bundle, v *verdict.Verdict) {
	set := j.Namespace.Constraints()
	if set.Empty() {
		return
	}
	for _, d := range set.Applicable(j.Namespace.ForConstraints()) {
		v.Record(RuleDependencyPending, state.ConstraintRef(d), true,
			j.Namespace.Suspended(d.Pending, d.Waits, d.Name, text.Name(c.Name)))
	}
	for _, f := range set.Judge(c.ForConstraints(j.Namespace), j.Namespace.ForConstraints(), j.budget) {
		c.Explain(&f, j.Namespace)
		recordConstraintOn(j.Namespace, c, j.Now, v, text.Name(c.Name), &f)
	}
}

// ofUnfinishedPlans reports whether a Constraint is undecided by packages and changes alone, which are read for
// unfinished plans only.
func ofUnfinishedPlans(f *constraint.Finding) bool {
	return f.Outcome == constraint.Undecided && f.Attributes != 0 &&
		f.Attributes&^(constraint.Deprecation|constraint.ChangeSet) == 0
}
