package compliance

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/rules/operatorpolicy"
)

// excepted adds the conditions on the author and on exceptions, additions of Opgate, and the delay until the time alone
// changes the latter.
func (e *evaluation) excepted(out Outcome) Outcome {
	if e.Unverified != "" {
		out.Conditions = append(out.Conditions, condition(operatorpolicy.ConditionAuthor, metav1.ConditionFalse, "StoredBefore",
			e.Unverified))
	}
	state := e.Rules.Exceptions().At(e.Now)
	inForce, reason, clauses := state.Condition()
	if len(clauses) == 0 {
		return out
	}
	out.Conditions = append(out.Conditions, condition(operatorpolicy.ConditionExceptions, statusIf(inForce),
		reason, sentences(clauses)))
	if next := e.Rules.Exceptions().Next(e.Now); !next.IsZero() {
		out.again(next.Sub(e.Now))
	}
	return out
}
