package events

import corev1 "k8s.io/api/core/v1"

// Exceptions records an event on a policy or a Constraint for each of its exceptions that ends soon or has ended. Each
// is a clause.
func (r *Recorder) Exceptions(regarding corev1.ObjectReference, ending, ended []string) {
	for _, part := range []struct {
		reason string
		notes  []string
	}{{ExceptionEndsSoon, ending}, {ExceptionEnded, ended}} {
		for _, note := range part.notes {
			r.Record(Event{Regarding: regarding, Reason: part.reason, Action: Update, Warning: true, Note: note})
		}
	}
}
