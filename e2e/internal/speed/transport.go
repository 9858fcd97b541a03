package speed

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// Transport bounds each request of a client to d in machine time, as http.Client.Timeout does by the clock: until its
// answer is closed.
func Transport(next http.RoundTripper, d time.Duration) http.RoundTripper { return transport{next, d} }

type transport struct {
	next http.RoundTripper
	d    time.Duration
}

// RoundTrip sends a request.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := WithTimeout(r.Context(), t.d)
	response, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		err = errors.Join(err, context.Cause(ctx)) // HTTP/2 reports only that it was canceled
		cancel()
		return nil, err
	}
	response.Body = &body{response.Body, cancel}
	return response, nil
}

type body struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close ends the request.
func (b *body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
