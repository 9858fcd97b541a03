package events

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
)

const (
	// maxQueued bounds the events that wait to be sent, each of a few KiB.
	maxQueued = 2_000
	// senders is the number of events that are sent concurrently.
	senders = 4
	// requestTimeout bounds one request, shutdownTimeout the requests for what is queued when the process ends.
	requestTimeout  = 10 * time.Second
	shutdownTimeout = 5 * time.Second
)

// backoff is between the attempts to send one event.
var backoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 4, Jitter: 0.2, Steps: 4}

// The results of events in metrics.
const (
	resultCreated  = "created"
	resultRepeated = "repeated"
	resultFailed   = "failed"
	resultDropped  = "dropped"
)

// Options configure a Recorder.
type Options struct {
	// Sink sends events. Required.
	Sink events.EventSink
	// Instance names this process in events, for example the name of the pod. Required.
	Instance string
	// Registry registers the metric. Required.
	Registry prometheus.Registerer
	// Log receives why events were not sent. Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

// Recorder records events and sends them while it runs. It is safe for concurrent use. A nil Recorder records nothing.
type Recorder struct {
	sink     events.EventSink
	instance string
	log      logr.Logger
	now      func() time.Time
	queue    chan queued
	memory   memory
	results  *prometheus.CounterVec
}

// queued is an event that waits to be sent.
type queued struct {
	id     digest
	object *eventsv1.Event
}

// NewRecorder returns a Recorder. Start sends what it records.
func NewRecorder(o Options) *Recorder {
	r := &Recorder{sink: o.Sink, instance: o.Instance, log: o.Log, now: o.Now, queue: make(chan queued, maxQueued),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "opgate_events_total",
			Help: "Total number of events on objects that Opgate decides about, by result (created, repeated, failed, dropped)."}, []string{"result"})}
	for _, result := range []string{resultCreated, resultRepeated, resultFailed, resultDropped} {
		r.results.WithLabelValues(result)
	}
	o.Registry.MustRegister(r.results)
	return r
}

// Record queues an event, unless the same was recorded before. It does not block: it returns false if the event was
// dropped, because too many are queued or were recorded for the object.
func (r *Recorder) Record(e Event) bool {
	if r == nil {
		return true
	}
	now, id, about := r.now(), e.digest(), object{e.Regarding.UID, e.Reason}
	switch r.memory.add(id, about, now) {
	case repeated:
		return true
	case excess:
		r.results.WithLabelValues(resultDropped).Inc()
		return false
	case fresh:
	}
	select {
	case r.queue <- queued{id, e.object(id, r.instance, now)}:
		return true
	default:
		r.memory.forget(id, about)
		r.results.WithLabelValues(resultDropped).Inc()
		r.log.Info("event dropped, too many wait to be sent", "kind", e.Regarding.Kind,
			"namespace", e.Regarding.Namespace,
			"name", e.Regarding.Name, "reason", e.Reason)
		return false
	}
}

// NeedLeaderElection returns false: every replica sends what it records.
func (r *Recorder) NeedLeaderElection() bool { return false }

// Start sends events until the context ends, and then those that are queued.
func (r *Recorder) Start(ctx context.Context) error {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(shutdownTimeout, cancel) })()
	var running sync.WaitGroup
	for range senders {
		running.Go(func() { r.sendUntil(ctx, sending) })
	}
	running.Wait()
	return nil
}

func (r *Recorder) sendUntil(ctx, sending context.Context) {
	for {
		select {
		case next := <-r.queue:
			r.send(sending, next)
			continue
		case <-ctx.Done():
		}
		break
	}
	for {
		select {
		case next := <-r.queue:
			r.send(sending, next)
		default:
			return
		}
	}
}

// send creates an event. One that exists was sent by another replica, or by this one before it was restarted.
func (r *Recorder) send(ctx context.Context, next queued) {
	// until it is tried
	last := context.Canceled
	// last states how it ended
	_ = wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (done bool, _ error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		_, last = r.sink.Create(ctx, next.object)
		return last == nil || !temporary(last), nil
	})
	switch {
	case last == nil:
		r.results.WithLabelValues(resultCreated).Inc()
	case apierrors.IsAlreadyExists(last):
		r.results.WithLabelValues(resultRepeated).Inc()
	default:
		if temporary(last) {
			r.memory.forget(next.id, object{next.object.Regarding.UID, next.object.Reason})
		}
		r.results.WithLabelValues(resultFailed).Inc()
		r.log.Error(last, "event not sent", "kind", next.object.Regarding.Kind,
			"namespace", next.object.Regarding.Namespace,
			"name", next.object.Regarding.Name, "reason", next.object.Reason)
	}
}

// temporary reports whether a request may succeed later: there was no answer, or one that reports it.
func temporary(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

const (
	// forgetAfter is how long a reason must not have been given to count as a new one. API servers keep events for an
	// hour.
	forgetAfter = time.Hour
	// maxRemembered bounds each generation of remembered events, and the objects that are counted.
	maxRemembered = 10_000
	// maxPerObject bounds the events on one object for one reason within forgetAfter: who writes an object decides on
	// what a refusal quotes, and so could make each refusal differ.
	maxPerObject = 20
)

// memory remembers which events were recorded, in two generations: when the younger one is full it replaces the older
// one. The zero value is ready for use; it is safe for concurrent use.
type memory struct {
	mu             sync.Mutex
	younger, older map[digest]time.Time // when the reason was last given
	// counted are the events of each object since an instant.
	counted map[object]int
	since   time.Time
}

// object is what events are counted of.
type object struct {
	uid    types.UID
	reason string
}

// novelty is whether an event was recorded before.
type novelty int

const (
	// fresh events are sent, repeated ones were recorded before, excess ones are too many of one object.
	fresh novelty = iota
	repeated
	excess
)

// add remembers an event.
func (m *memory) add(id digest, about object, now time.Time) novelty {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, known := m.younger[id]
	if !known {
		last, known = m.older[id]
	}
	known = known && now.Sub(last) < forgetAfter
	if !known && m.count(about, now) > maxPerObject {
		return excess
	}
	if m.younger == nil || len(m.younger) >= maxRemembered {
		m.younger, m.older = map[digest]time.Time{}, m.younger
	}
	m.younger[id] = now
	if known {
		return repeated
	}
	return fresh
}

// count returns the events of an object, with this one.
func (m *memory) count(about object, now time.Time) int {
	if m.counted == nil || now.Sub(m.since) >= forgetAfter || len(m.counted) >= maxRemembered {
		m.counted, m.since = map[object]int{}, now
	}
	m.counted[about]++
	return m.counted[about]
}

// forget makes an event count as one that was never recorded.
func (m *memory) forget(id digest, about object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.younger, id)
	delete(m.older, id)
	if m.counted[about] > 0 {
		m.counted[about]--
	}
}
