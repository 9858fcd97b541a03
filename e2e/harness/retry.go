package harness

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"time"

	"github.com/opgate/opgate/e2e/internal/speed"
)

// busy is what Opgate answers if it could not judge in time, by itself or by what it asks the API server. On a machine
// with much else to do it does so for seconds.
var busy = regexp.MustCompile(`it is overloaded; try again|could not be checked \([a-z-]+/[a-z-]+\): try again`)

// retrier sends a request again for as long as Opgate answers that it is busy, as that answer asks for. It is for what
// sets a test up; what is tested is sent once.
type retrier struct{ next http.RoundTripper }

func retryWhileBusy(next http.RoundTripper) http.RoundTripper { return retrier{next} }

// RoundTrip returns the first other answer, or the last one.
func (r retrier) RoundTrip(req *http.Request) (*http.Response, error) {
	waiting, cancel := speed.WithTimeout(req.Context(), WaitTimeout)
	defer cancel()
	for {
		answer, err := r.next.RoundTrip(req)
		if err != nil || answer.StatusCode < http.StatusBadRequest {
			return answer, err
		}
		body, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			return nil, err
		}
		answer.Body = io.NopCloser(bytes.NewReader(body))
		if !busy.Match(body) || waiting.Err() != nil || req.Body != nil && req.GetBody == nil {
			return answer, nil
		}
		// A gate that is busy on an idle machine is a fault, which must not go unnoticed.
		fmt.Fprintf(os.Stderr, "opgate is busy, %s %s is sent again: %s\n", req.Method, req.URL.Path, busy.Find(body))
		select {
		case <-waiting.Done():
			return answer, nil
		case <-time.After(time.Second):
		}
		req = req.Clone(req.Context())
		if req.Body != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}
