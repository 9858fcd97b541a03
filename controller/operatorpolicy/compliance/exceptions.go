package compliance

import "github.com/opgate/opgate/rules/exception"

// excepted adds the finding on exceptions, an addition of Opgate, and the delay until the time alone changes it.
func (e *evaluation) excepted(out Outcome) Outcome {
	state := e.Rules.Exceptions().At(e.Now)
	inForce, reason, clauses := state.Condition()
	if len(clauses) == 0 {
		return out
	}
	out.Findings = append(out.Findings, Finding{
		Type: exception.Condition, Status: statusIf(inForce), Reason: reason, Message: sentences(clauses),
	})
	if next := e.Rules.Exceptions().Next(e.Now); !next.IsZero() {
		if after := next.Sub(e.Now); out.After == 0 || after < out.After {
			out.After = after
		}
	}
	return out
}
