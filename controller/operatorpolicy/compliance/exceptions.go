package compliance

import "slices"

// TypeExceptions is an addition of Opgate: whether an exception of the spec is in force. Absent without exceptions. It
// does not count for compliance: what an exception lets in does, once that has ended.
const TypeExceptions = "ExceptionsInForce"

// The reasons of TypeExceptions.
const (
	ReasonExceptionsInForce = "ExceptionsInForce"
	ReasonExceptionEndsSoon = "ExceptionEndsSoon"
	ReasonExceptionEnded    = "ExceptionEnded"
)

// excepted adds the finding on exceptions, and the delay until the time alone changes it.
func (e *evaluation) excepted(out Outcome) Outcome {
	state := e.Rules.Exceptions(e.Now)
	inForce := slices.Concat(state.Ending, state.Later)
	all := slices.Concat(state.Ended, inForce)
	if len(all) == 0 {
		return out
	}
	f := Finding{Type: TypeExceptions, Status: statusIf(len(inForce) > 0), Reason: ReasonExceptionsInForce, Message: sentences(all)}
	switch {
	case len(state.Ended) > 0:
		f.Reason = ReasonExceptionEnded
	case len(state.Ending) > 0:
		f.Reason = ReasonExceptionEndsSoon
	}
	out.Findings = append(out.Findings, f)
	if next := e.Rules.NextException(e.Now); !next.IsZero() {
		if after := next.Sub(e.Now); out.After == 0 || after < out.After {
			out.After = after
		}
	}
	return out
}
