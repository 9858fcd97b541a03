package rules

import (
	"fmt"
	"slices"
	"strings"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
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
	now, _ := newExceptions(op) // what is not valid is refused
	var before []exception
	if old != nil {
		before, _ = newExceptions(old)
	}
	var paths []string
	for i := range now {
		if e := &now[i]; e.widens(before) {
			paths = append(paths, fmt.Sprintf("spec.exceptions[%d]", e.index))
		}
	}
	return paths
}

// widens reports whether the exception sets a rule aside for a name that none of some others does for as long. A name
// with a digest is not widened by one without.
func (e *exception) widens(others []exception) bool {
	for _, entry := range e.versions.entries {
		name, _, _ := strings.Cut(entry, "@")
		for _, id := range e.rules {
			covered := func(o exception) bool {
				return slices.Contains(o.rules, id) && !e.expires.After(o.expires) &&
					(slices.Contains(o.versions.entries, entry) || o.versions.lists(name))
			}
			if !slices.ContainsFunc(others, covered) {
				return true
			}
		}
	}
	return false
}

// RefuseExceptions refuses an OperatorPolicy with exceptions, at some paths, that its author may not write; why is a
// clause on the missing right.
func RefuseExceptions(v *verdict.Verdict, paths []string, why string) {
	v.Refuse(verdict.Reason{Rule: RuleOperatorPolicyExceptionRight, Decision: verdict.Deny, Field: paths[0],
		Message: verdict.Sentence("adding, prolonging or widening "+text.Names(paths, verdict.MaxListed)+" is not allowed",
			RuleOperatorPolicyExceptionRight, why)})
	*v = v.Sorted()
}

// judgeExceptions judges exceptions by their end. One that has ended is warned of, and refused in a review of files: a
// stored policy with one may still be edited, and what is deployed anew should not have it. A review warns of those
// that end soon.
func judgeExceptions(in *OperatorPolicyInput, p *OperatorPolicy, v *verdict.Verdict) {
	if in.Now.IsZero() {
		return
	}
	state := p.Exceptions(in.Now)
	for _, ended := range state.Ended {
		r := verdict.Reason{Rule: RuleOperatorPolicyExceptionEnded, Decision: verdict.Deny, Field: "spec.exceptions",
			Message: verdict.Sentence(ended, RuleOperatorPolicyExceptionEnded, afterEnd)}
		if in.Review {
			v.Refuse(r)
		} else {
			v.Warn(r)
		}
	}
	for _, ending := range state.Ending {
		if in.Review {
			v.Warn(verdict.Reason{Rule: RuleOperatorPolicyExceptionEnded, Field: "spec.exceptions",
				Message: verdict.Sentence(ending, RuleOperatorPolicyExceptionEnded, "that is in less than 14 days; "+afterEnd)})
		}
	}
}
