package admission

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// defaultTimeout is the API server's timeout where a request does not state it: timeoutSeconds of the webhook configurations.
const defaultTimeout = 5 * time.Second

// withDeadline returns the context of a review. It ends after four fifths of the API server's timeout: judging stops then, and what was
// not judged is held, in an answer that still arrives. A timeout would allow the request where failurePolicy is Ignore. The API server
// sends its timeout in parameter timeout; more than ten times the default is ignored.
func withDeadline(r *http.Request) (context.Context, context.CancelFunc) {
	timeout := defaultTimeout
	if given, ok := strings.CutPrefix(r.URL.RawQuery, "timeout="); ok { // the API server adds no other parameter
		if parsed, err := time.ParseDuration(given); err == nil && parsed > 0 && parsed <= 10*defaultTimeout {
			timeout = parsed
		}
	}
	return context.WithTimeout(r.Context(), timeout-timeout/5)
}
