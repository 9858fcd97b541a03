package stream

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// shortest is the period of a watch that has shown no progress for a while: the first sign of it comes within two
	// seconds.
	shortest = 2 * time.Second
	// leastSlack is how much later than at its timeout a watch may end, at least.
	leastSlack = 2 * time.Second
)

// Progress records how current the watch of a resource is, and keeps it so: the API server sends bookmarks once a
// minute, but ends a watch when it was asked to, so a watch is opened for half of the bound, and then again from where
// it ended. A list, an event, a bookmark and that end show that nothing was withheld until then. A watch that
// does not end in time is closed and opened again. It is safe for concurrent use.
type Progress struct {
	bound     time.Duration
	confirmed atomic.Pointer[time.Time]
	version   atomic.Pointer[string]
}

// NewProgress returns the progress of a watch that is stale once it has shown none for longer than a bound, of at least
// five seconds.
func NewProgress(bound time.Duration) *Progress { return &Progress{bound: bound} }

// Stale reports whether the watch has shown progress, and then none for longer than the bound.
func (p *Progress) Stale() bool {
	at := p.confirmed.Load()
	return at != nil && time.Since(*at) > p.bound
}

// Confirmed returns until when the watch has shown everything; the zero time if it has shown nothing yet.
func (p *Progress) Confirmed() time.Time {
	if at := p.confirmed.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Reached reports whether the watch has shown a resourceVersion, or a later one.
func (p *Progress) Reached(version string, older func(version, than string) bool) bool {
	latest := p.version.Load()
	return latest != nil && !older(*latest, version)
}

// Forget makes the watch one that has shown nothing yet: the resource is not served.
func (p *Progress) Forget() {
	if p != nil {
		p.confirmed.Store(nil)
	}
}

func (p *Progress) confirm(until time.Time) {
	if now := time.Now(); until.IsZero() || now.Before(until) {
		until = now
	}
	p.confirmed.Store(&until)
}

func (p *Progress) observed(version string) {
	if version != "" {
		p.version.Store(&version)
	}
}

// period is how long the next watch lasts.
func (p *Progress) period() time.Duration {
	if at := p.confirmed.Load(); at == nil || time.Since(*at) > p.bound*3/5 {
		return shortest
	}
	return p.bound / 2
}

// slack is how much later than at its timeout a watch may end. One that ends later still leaves the time for another.
func (p *Progress) slack() time.Duration { return max(leastSlack, p.bound/10) }

// LongestPause bounds the delay after a failed request, so that the watch is current again soon after the API server
// is: the delay of an informer grows to a minute, which would be added to an outage.
func (p *Progress) LongestPause() time.Duration { return p.bound / 10 }

// request is one request of a watch whose progress is recorded.
type request struct {
	*Progress
	ctx    context.Context
	cancel context.CancelFunc
	// initial is set until all objects that exist were sent.
	initial bool
	// opened is when it was answered, and until when the API server ends it: what is read later was sent before. The
	// zero value of until bounds nothing.
	opened, until time.Time
	// timer ends the request.
	timer   *time.Timer
	expired atomic.Bool
}

// follow opens a watch whose progress is recorded.
func (s *source) follow(ctx context.Context, options *metav1.ListOptions) (watch.Interface, error) {
	r := &request{Progress: s.progress, initial: options.SendInitialEvents != nil && *options.SendInitialEvents}
	r.ctx, r.cancel = context.WithCancel(ctx)
	period, limit := s.progress.period(), 3*s.progress.bound
	if !r.initial {
		options.TimeoutSeconds = new(int64(period / time.Second))
		limit = period + s.progress.slack()
	}
	r.timer = time.AfterFunc(limit, r.expire)
	body, err := s.open(r.ctx, options)
	switch {
	case err != nil && r.expired.Load():
		return watch.NewEmptyWatch(), nil // to be opened again at once
	case err != nil:
		r.end()
		return nil, err
	}
	if r.opened = time.Now(); !r.initial {
		r.until = r.opened.Add(period + s.progress.slack()/2)
	}
	return s.watcher(body, r), nil
}

func (r *request) expire() {
	r.expired.Store(true)
	r.cancel()
}

func (r *request) end() {
	if r != nil {
		r.timer.Stop()
		r.cancel()
	}
}

// event records an event. Those of objects that exist are complete with the bookmark that follows them; from then on
// the request lasts as long as others.
func (r *request) event(kind watch.EventType, object runtime.Object) {
	if r == nil || r.ctx.Err() != nil {
		return
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return
	}
	if r.initial {
		if kind != watch.Bookmark || m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			r.timer.Reset(3 * r.bound)
			return
		}
		r.initial = false
		r.timer.Reset(r.slack())
	}
	r.observed(m.GetResourceVersion())
	r.confirm(r.until)
}

// ended records the end of the request, and returns io.EOF if that is no failure. An API server that stops may end a
// request before it has sent what has happened.
func (r *request) ended(err error) error {
	switch {
	case r == nil:
	case r.expired.Load():
		return io.EOF
	case err == io.EOF && !r.initial && r.ctx.Err() == nil && time.Since(r.opened) > time.Second: //nolint:errorlint // as the decoder returns it
		r.confirm(r.until)
	}
	return err
}
