package rules

import (
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/exception"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on spec.exceptions of an OperatorPolicy. The first is on the rights of its author, which package admission
// checks.
const (
	RuleOperatorPolicyExceptionRight verdict.RuleID = "operatorpolicy/exception-right"
	RuleOperatorPolicyExceptionEnded verdict.RuleID = "operatorpolicy/exception-ended"
)

var (
	operatorPolicyExceptionRight = verdict.Rule{ID: RuleOperatorPolicyExceptionRight, Outcomes: verdict.Denies,
		Summary: "an exception is added, prolonged or widened by a user without the RBAC verb override on the policy"}
	operatorPolicyExceptionEnded = verdict.Rule{ID: RuleOperatorPolicyExceptionEnded, Outcomes: verdict.DeniesOrWarns,
		Summary: "an exception has ended, which a review of files refuses, or ends within 14 days"}
)

// WidenedExceptions returns the paths of the exceptions by which a write of an OperatorPolicy sets more aside than the
// stored one does, or for longer, whatever has ended: one that is added, prolonged or widened. Old is nil on create.
func WidenedExceptions(op, old *policyv1beta2.OperatorPolicy) []string {
	now, _ := state.ReadExceptions(op, bundle.Exceptable()) // what is not valid is refused
	var before exception.List
	if old != nil {
		before, _ = state.ReadExceptions(old, bundle.Exceptable())
	}
	return now.Widened(before)
}

// RefuseExceptions refuses an object with exceptions, at some paths, that its author may not write; why is a clause on
// the missing right.
func RefuseExceptions(v *verdict.Verdict, id verdict.RuleID, paths []string, why string) {
	v.Refuse(verdict.Reason{Rule: id, Decision: verdict.Deny, Field: paths[0],
		Message: verdict.Sentence("adding, prolonging or widening "+text.Names(paths, verdict.MaxListed)+
			" is not allowed",
			id, why)})
	*v = v.Sorted()
}
