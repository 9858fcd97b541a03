package operatorpolicy

import (
	"time"

	"github.com/opgate/opgate/rules"
)

// untilWindow returns the delay until the time alone changes what holds plans of a namespace, 0 for never. It is the
// one timer of a namespace for approval windows, set only while a plan waits outside of one.
func (r *reconciler) untilWindow(ns *rules.Namespace) time.Duration {
	now := r.Now()
	if next := ns.NextWindow(now); !next.IsZero() {
		return next.Sub(now)
	}
	return 0
}
