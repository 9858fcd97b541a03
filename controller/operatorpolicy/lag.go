package operatorpolicy

import (
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/opgate/opgate/rules/backstop"
)

const (
	// backstopLag is how long approvals that the API server itself refuses are retried before that is reported: after a policy is edited
	// its admission policy is written at the same time as plans are approved, and takes effect within two seconds.
	backstopLag = 10 * time.Second
	// backstopRetry is the requeue delay meanwhile.
	backstopRetry = 250 * time.Millisecond
)

// refusedByBackstop reports whether the API server itself refused a write, by the admission policy that policies are compiled to.
func refusedByBackstop(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+backstop.Name+"'")
}

// lags records since when the API server itself refuses approvals, by namespace. The zero value is ready for use; it is safe for
// concurrent use.
type lags struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// begun records a refusal and returns how long there have been any in the namespace.
func (l *lags) begun(namespace string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, ok := l.since[namespace]
	if !ok {
		if l.since == nil {
			l.since = map[string]time.Time{}
		}
		first, l.since[namespace] = now, now
	}
	return now.Sub(first)
}

func (l *lags) end(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.since, namespace)
}
