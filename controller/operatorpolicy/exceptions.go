package operatorpolicy

import (
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/rules"
)

// reportExceptions records an event on a policy for each exception that ends soon or has ended, and exports when the
// first one in force ends.
func (r *reconciler) reportExceptions(p *rules.OperatorPolicy) {
	now := r.Now()
	r.Metrics.exceptionEnd(p, p.ExceptionEnd(now))
	state := p.Exceptions(now)
	regarding := p.Reference()
	regarding.UID = p.Object.UID
	for _, part := range []struct {
		reason string
		notes  []string
	}{{events.ExceptionEndsSoon, state.Ending}, {events.ExceptionEnded, state.Ended}} {
		for _, note := range part.notes {
			r.Events.Record(events.Event{Regarding: *regarding, Reason: part.reason, Action: events.Update, Warning: true, Note: note})
		}
	}
}
