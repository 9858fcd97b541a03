package admission

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// defaultTimeout is how long the API server waits where it does not say so: timeoutSeconds of the webhook configurations.
const defaultTimeout = 5 * time.Second

// withDeadline is the context of a review, which ends a fifth before the API server gives up: judging stops then, and what was not
// judged is held, in an answer that still arrives. No answer in time would allow where failurePolicy is Ignore. The API server says in
// parameter timeout how long it waits; more than ten times the default is ignored.
func withDeadline(r *http.Request) (context.Context, context.CancelFunc) {
	timeout := defaultTimeout
	if given, ok := strings.CutPrefix(r.URL.RawQuery, "timeout="); ok { // all that the API server adds
		if parsed, err := time.ParseDuration(given); err == nil && parsed > 0 && parsed <= 10*defaultTimeout {
			timeout = parsed
		}
	}
	return context.WithTimeout(r.Context(), timeout-timeout/5)
}
