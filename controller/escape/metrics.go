package escape

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/opgate/opgate/rules/verdict"
)

// Metrics count escapes, while this replica leads.
type Metrics struct{ escapes *prometheus.GaugeVec }

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{escapes: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "opgate_escapes",
		Help: "Number of ClusterServiceVersions that were installed while Opgate was not running and are not allowed, by kind of what refuses them (policy, constraint)."},
		[]string{"kind"})}
	registry.MustRegister(m.escapes)
	return m
}

func (m *Metrics) set(all []record) {
	for label, kind := range map[string]string{"policy": verdict.KindOperatorPolicy,
		"constraint": verdict.KindConstraint} {
		n := 0
		for _, one := range all {
			if one.by(kind) {
				n++
			}
		}
		m.escapes.WithLabelValues(label).Set(float64(n))
	}
}
