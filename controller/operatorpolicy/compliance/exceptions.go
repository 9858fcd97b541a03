package compliance

import "github.com/opgate/opgate/rules/operatorpolicy"

// excepted adds the condition on exceptions, an addition of Opgate, and the delay until the time alone changes it.
func (e *evaluation) excepted(out Outcome) Outcome {
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
