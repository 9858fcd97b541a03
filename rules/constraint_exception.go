package rules

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/exception"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on spec.exceptions of a Constraint. The first is on the rights of its author, which package admission
// checks.
const (
	RuleConstraintExceptionRight verdict.RuleID = "constraint/exception-right"
	RuleConstraintExceptionEnded verdict.RuleID = "constraint/exception-ended"
)

var (
	constraintExceptionRight = verdict.Rule{ID: RuleConstraintExceptionRight, Outcomes: verdict.Denies,
		Summary: "an exception is added, prolonged or widened by a user without the RBAC verb override on the Constraint"}
	constraintExceptionEnded = verdict.Rule{ID: RuleConstraintExceptionEnded, Outcomes: verdict.DeniesOrWarns,
		Summary: "an exception of a Constraint has ended, which a review of files refuses, or ends within 14 days"}
)

// constraintExceptions returns the exceptions of a Constraint, and what is not valid about them. They are all about
// bundle/constraint, the rule by which a Constraint judges what is installed.
func constraintExceptions(c *constraintv1.Constraint) (exception.List, field.ErrorList) {
	specs, rule := make([]exception.Spec, len(c.Spec.Exceptions)), []string{string(bundle.RuleConstraint)}
	for i, e := range c.Spec.Exceptions {
		specs[i] = exception.Spec{Versions: e.Versions, Namespaces: e.Namespaces, Rules: rule, Reason: e.Reason,
			Expires: e.Expires}
	}
	return exception.Read(field.NewPath("spec", "exceptions"), specs, rule, c.Status.EndedExceptions)
}

// WidenedConstraintExceptions is WidenedExceptions for a Constraint.
func WidenedConstraintExceptions(c, old *constraintv1.Constraint) []string {
	now, _ := constraintExceptions(c) // what is not valid is refused
	var before exception.List
	if old != nil {
		before, _ = constraintExceptions(old)
	}
	return now.Widened(before)
}

// judgeExceptions judges the exceptions of a Constraint that is written.
func (in *ConstraintInput) judgeExceptions(v *verdict.Verdict) exception.List {
	all, errs := constraintExceptions(in.Constraint)
	for _, err := range errs {
		v.Refuse(verdict.Reason{Rule: RuleConstraintField, Decision: verdict.Deny, Field: err.Field,
			Message: verdict.Sentence(err.Error(), RuleConstraintField, "")})
	}
	all.Judge(v, RuleConstraintExceptionEnded, in.Now, in.Review)
	return all
}
