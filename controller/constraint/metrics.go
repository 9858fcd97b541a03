package constraint

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics show what installed operators violate, while this replica leads.
type Metrics struct {
	violations *prometheus.GaugeVec

	mu      sync.Mutex
	leading bool
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{violations: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "opgate_constraint_violations",
		Help: "How often an installed operator does not satisfy one of the constraints of a Constraint."}, []string{"constraint"})}
	registry.MustRegister(m.violations)
	return m
}

func (m *Metrics) set(constraint string, violations int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leading { // what was counted while the lease was lost is the next leader's to show
		m.violations.WithLabelValues(constraint).Set(float64(violations))
	}
}

func (m *Metrics) forget(constraint string) { m.violations.DeleteLabelValues(constraint) }

func (m *Metrics) started() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leading = true
}

// stopped forgets what the replica that leads now shows.
func (m *Metrics) stopped() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leading = false
	m.violations.Reset()
}
