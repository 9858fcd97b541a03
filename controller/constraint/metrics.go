package constraint

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics export what installed operators violate, while this replica leads.
type Metrics struct {
	violations *prometheus.GaugeVec
	number     *prometheus.GaugeVec // without labels: no series while another replica leads

	mu sync.Mutex
	// violated are the Constraints that at least one installed operator violates.
	violated map[string]bool
}

// NewMetrics registers the metrics; those that name Constraints with a registry of their own, since not every user may
// read it.
func NewMetrics(registry, named prometheus.Registerer) *Metrics {
	m := &Metrics{violations: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "opgate_constraint_violations",
		Help: "Number of violations of a Constraint by installed operators."}, []string{"constraint"}),
		number: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "opgate_violated_constraints",
			Help: "Number of Constraints that an installed operator does not satisfy."}, nil),
		violated: map[string]bool{}}
	named.MustRegister(m.violations)
	registry.MustRegister(m.number)
	return m
}

func (m *Metrics) set(constraint string, violations int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.violations.WithLabelValues(constraint).Set(float64(violations))
	if delete(m.violated, constraint); violations > 0 {
		m.violated[constraint] = true
	}
	m.number.WithLabelValues().Set(float64(len(m.violated)))
}

func (m *Metrics) forget(constraint string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.violations.DeleteLabelValues(constraint)
	delete(m.violated, constraint)
	m.number.WithLabelValues().Set(float64(len(m.violated)))
}
