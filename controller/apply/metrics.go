package apply

import "github.com/prometheus/client_golang/prometheus"

// Metrics count the writes of controllers.
type Metrics struct {
	approvals *prometheus.CounterVec
	writes    *prometheus.CounterVec
	left      *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		approvals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "opgate_loop_approvals_total",
			Help: "Total number of InstallPlans that the background loop approved or tried to, by result (approved, conflict, refused)."},
			[]string{"result"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "opgate_loop_writes_total",
			Help: "Total number of writes of the background loop without approvals, by verb, kind and result (ok, failed)."},
			[]string{"verb", "kind", "result"}),
		left: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "opgate_table_left",
			Help: "Number of policies, and of other objects, for which a bounded table has no room, by table."},
			[]string{"table"}),
	}
	for _, result := range []string{"approved", "conflict", "refused"} { // from 0, so that the first one is an increase
		m.approvals.WithLabelValues(result)
	}
	for table := range consequences {
		m.Left(table, 0)
	}
	registry.MustRegister(m.approvals, m.writes, m.left)
	return m
}

// Wrote counts a write with its result.
func (m *Metrics) Wrote(verb, kind string, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.writes.WithLabelValues(verb, kind, result).Inc()
}

// Left sets what a table has no room for.
func (m *Metrics) Left(table string, number int) { m.left.WithLabelValues(table).Set(float64(number)) }

func (m *Metrics) approved(err error) {
	result := "approved"
	switch {
	case Outdated(err):
		result = "conflict"
	case err != nil:
		result = "refused"
	}
	m.approvals.WithLabelValues(result).Inc()
}
