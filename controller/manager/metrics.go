package manager

import "github.com/prometheus/client_golang/prometheus"

// Metrics export whether this replica leads.
type Metrics struct{ leading prometheus.Gauge }

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{leading: prometheus.NewGauge(prometheus.GaugeOpts{Name: "opgate_loop_leading",
		Help: "Whether this replica runs the background loop (1) or not (0)."})}
	registry.MustRegister(m.leading)
	return m
}
