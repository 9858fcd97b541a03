package templates

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// requestTimeout bounds a lookup, and the start of a watch.
	requestTimeout = 8 * time.Second
	// maxLookup bounds the response of one lookup, since all of it is cached: templates that list a kind
	// without a selector find all objects of the cluster.
	maxLookup = 16 << 20
)

var errTooLarge = errors.New("the lookup finds more than 16 MiB; give a name, a namespace or a selector")

// transport sends the requests of one session. The libraries that make them pass no context and no timeout,
// and hold a lock while they wait.
type transport struct {
	base http.RoundTripper
	// ctx ends every request, including watches: those of the libraries have a context that never ends.
	ctx context.Context
	// lost is called when a resource that is watched is not served any more. The library would retry
	// every second.
	lost func()
	gone atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	detach := context.AfterFunc(t.ctx, cancel)
	end := func() {
		detach()
		cancel()
	}
	timer := time.AfterFunc(requestTimeout, cancel)
	resp, err := t.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		if !timer.Stop() && t.ctx.Err() == nil && req.Context().Err() == nil {
			err = errors.Join(context.DeadlineExceeded, errors.New("no answer within "+requestTimeout.String()))
		}
		end()
		return nil, err
	}
	if resp.StatusCode == http.StatusNotFound && isResource(req.URL.Path) && t.gone.CompareAndSwap(false, true) {
		t.lost()
	}
	watch := req.URL.Query().Has("watch")
	if watch {
		timer.Stop() // a watch has no time limit
	}
	resp.Body = &body{ReadCloser: resp.Body, left: maxLookup, watch: watch, end: func() {
		timer.Stop()
		end()
	}}
	return resp, nil
}

// isResource distinguishes the path of a collection from that of discovery: /api/v1 and /apis/<group>/<version>.
func isResource(path string) bool {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	return len(segments) > 3 || len(segments) > 2 && segments[0] == "api"
}

// body ends the request's context when it is closed, and limits what is read of a lookup.
type body struct {
	io.ReadCloser
	left  int
	watch bool
	end   func()
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.watch {
		if b.left -= n; b.left < 0 {
			return 0, errTooLarge
		}
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
