package bundle

import (
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleConstraint is on Constraints of the cluster.
const RuleConstraint verdict.RuleID = "bundle/constraint"

var bundleConstraint = verdict.Rule{ID: RuleConstraint, Outcomes: verdict.AnyOutcome, Override: true,
	Summary: "a ClusterServiceVersion does not satisfy a Constraint, or whether it does is not known"}

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
