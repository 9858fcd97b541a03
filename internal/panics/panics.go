// Package panics turns a panic in a handler into an answer. Without it the server closes the connection, which a client
// treats as an outage, and OLM as a final failure of the plan.
package panics

import (
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
)

// Recorder logs and counts panics. It is safe for concurrent use.
type Recorder struct {
	log    logr.Logger
	panics *prometheus.CounterVec
}

// NewRecorder returns a recorder and registers its metric.
func NewRecorder(registry prometheus.Registerer, log logr.Logger) *Recorder {
	r := &Recorder{log: log, panics: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "opgate_panics_total",
		Help: "Total number of panics that were recovered from, by kind of what was worked on.",
	}, []string{"kind"})}
	registry.MustRegister(r.panics)
	return r
}

// Expect exports the number of panics of a kind from 0 on, so that the first one is an increase.
func (r *Recorder) Expect(kind string) { r.panics.WithLabelValues(kind) }

// Run calls f and reports whether it panicked. A panic is logged with its stack and counted by kind;
// http.ErrAbortHandler is not recovered, since the server handles it.
func (r *Recorder) Run(kind string, f func()) (panicked bool) {
	defer func() {
		cause := recover()
		switch cause {
		case nil:
			return
		case http.ErrAbortHandler:
			panic(cause)
		}
		panicked = true
		r.panics.WithLabelValues(kind).Inc()
		r.log.Error(fmt.Errorf("%v", cause), "recovered from a panic", "kind", kind, "stack", string(debug.Stack()))
	}()
	f()
	return false
}
