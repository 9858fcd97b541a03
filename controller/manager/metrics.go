package manager

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics export whether this replica leads.
type Metrics struct {
	// term is that in which controllers run; nil while they do not.
	term atomic.Pointer[term]
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{}
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "opgate_loop_leading",
		Help: "Whether this replica runs the background loop (1) or not (0)."}, func() float64 {
		if t := m.term.Load(); t != nil && t.valid() == nil {
			return 1
		}
		return 0
	}))
	return m
}
