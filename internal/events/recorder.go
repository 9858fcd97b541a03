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
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
)

const (
	// maxQueued bounds the events that wait to be sent, each of a few KiB.
	maxQueued = 2_000
	// senders is the number of events that are sent concurrently.
	senders = 4
	// requestTimeout bounds one request, shutdownTimeout the requests for what is queued when the process ends.
	requestTimeout  = 10 * time.Second
	shutdownTimeout = 5 * time.Second
	// forgetAfter is how long a reason must not have been given to count as a new one. API servers keep events for an
	// hour.
	forgetAfter = time.Hour
	// maxRemembered bounds the events that are remembered, and the objects that are counted.
	maxRemembered = 10_000
	// maxPerObject bounds the events on one object for one reason within forgetAfter: who writes an object decides on
	// what a refusal quotes, and so could make each refusal differ.
	maxPerObject = 20
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
	Options
	queue   workqueue.TypedInterface[*eventsv1.Event]
	results *prometheus.CounterVec

	mu sync.Mutex
	// recorded has the names of events, and counted how many there were on an object for a reason.
	recorded, counted *cache.LRUExpireCache
}

// object is what events are counted of.
type object struct {
	uid    types.UID
	reason string
}

type clock func() time.Time

func (c clock) Now() time.Time { return c() }

// NewRecorder returns a Recorder. Start sends what it records.
func NewRecorder(o Options) *Recorder {
	r := &Recorder{Options: o, queue: workqueue.NewTyped[*eventsv1.Event](),
		recorded: cache.NewLRUExpireCacheWithClock(maxRemembered, clock(o.Now)),
		counted:  cache.NewLRUExpireCacheWithClock(maxRemembered, clock(o.Now)),
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
	name, about := e.name(), object{e.Regarding.UID, e.Reason}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.recorded.Get(name)
	switch {
	case known:
	case r.queue.Len() >= maxQueued:
		r.results.WithLabelValues(resultDropped).Inc()
		r.Log.Info("event dropped, too many wait to be sent", "kind", e.Regarding.Kind,
			"namespace", e.Regarding.Namespace,
			"name", e.Regarding.Name, "reason", e.Reason)
		return false
	case r.count(about) > maxPerObject:
		r.results.WithLabelValues(resultDropped).Inc()
		return false
	default:
		r.queue.Add(e.object(name, r.Instance, r.Now()))
	}
	r.recorded.Add(name, nil, forgetAfter)
	return true
}

// count returns the events on an object since the first one within forgetAfter, with this one.
func (r *Recorder) count(about object) int {
	n, ok := r.counted.Get(about)
	if !ok {
		n = new(int)
		r.counted.Add(about, n, forgetAfter)
	}
	*n.(*int)++
	return *n.(*int)
}

// NeedLeaderElection returns false: every replica sends what it records.
func (r *Recorder) NeedLeaderElection() bool { return false }

// Start sends events until the context ends, and then those that are queued.
func (r *Recorder) Start(ctx context.Context) error {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		r.queue.ShutDown()
		time.AfterFunc(shutdownTimeout, cancel)
	})()
	var running sync.WaitGroup
	for range senders {
		running.Go(func() {
			for next, ended := r.queue.Get(); !ended; next, ended = r.queue.Get() {
				r.send(sending, next)
				r.queue.Done(next)
			}
		})
	}
	running.Wait()
	return nil
}

// send creates an event. One that exists was sent by another replica, or by this one before it was restarted.
func (r *Recorder) send(ctx context.Context, event *eventsv1.Event) {
	last := context.Canceled // until it is tried
	_ = wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (done bool, _ error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		_, last = r.Sink.Create(ctx, event)
		return last == nil || !temporary(last), nil
	})
	switch {
	case last == nil:
		r.results.WithLabelValues(resultCreated).Inc()
	case apierrors.IsAlreadyExists(last):
		r.results.WithLabelValues(resultRepeated).Inc()
	default:
		if temporary(last) {
			r.recorded.Remove(event.Name)
			r.counted.Remove(object{event.Regarding.UID, event.Reason})
		}
		r.results.WithLabelValues(resultFailed).Inc()
		r.Log.Error(last, "event not sent", "kind", event.Regarding.Kind,
			"namespace", event.Regarding.Namespace, "name", event.Regarding.Name, "reason", event.Reason)
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
