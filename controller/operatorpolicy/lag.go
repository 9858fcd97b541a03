package operatorpolicy

import (
	"time"

	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/backstop"
)

const (
	// backstopLag is how long approvals that the API server itself refuses are retried before that is reported: after a
	// policy is edited its admission policy is written at the same time as plans are approved, and takes effect within
	// two seconds.
	backstopLag = 10 * time.Second
	// backstopRetry is the requeue delay meanwhile.
	backstopRetry = 250 * time.Millisecond
)

// refusedByBackstop reports whether the API server itself refused a write, by the admission policy that policies are
// compiled to.
func refusedByBackstop(err error) bool {
	r := rules.RefusalOf(err)
	return r != nil && r.Policy == backstop.Name
}

// lags records a refusal by the API server itself and returns how long there have been any.
func (n *namespaceState) lags(now time.Time) time.Duration {
	if n.refused.IsZero() {
		n.refused = now
	}
	return now.Sub(n.refused)
}
