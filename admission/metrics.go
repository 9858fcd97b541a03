package admission

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// Metrics are what the gate counts. Namespaces, users and policies are never labels: they are unbounded.
type Metrics struct {
	decisions *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	overrides *prometheus.CounterVec
}

// NewMetrics registers the gate's metrics. The snapshot's generation and age, in seconds since it was last
// built, are read from the store when they are scraped.
func NewMetrics(registry prometheus.Registerer, store *snapshot.Store, now func() time.Time) *Metrics {
	m := &Metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "opgate_decisions_total",
			Help: "Total number of admission reviews answered, by kind of object, operation, decision and the rule of the first reason.",
		}, []string{"kind", "operation", "decision", "rule"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "opgate_decision_duration_seconds",
			Help:    "Seconds from reading a review to its answer, by kind of object.",
			Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .05, .25, 1},
		}, []string{"kind"}),
		overrides: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "opgate_overrides_total",
			Help: "Total number of refusals that users with the RBAC verb override set aside, by rule.",
		}, []string{"rule"}),
	}
	for _, rule := range rules.Rules() {
		if rule.SetsAside {
			m.overrides.WithLabelValues(string(rule.ID)) // from 0, so that the first one is an increase
		}
	}
	registry.MustRegister(m.decisions, m.duration, m.overrides,
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "opgate_cel_compilations_total",
			Help: "Total number of CEL expressions of Constraints and bundles compiled.",
		}, func() float64 { return float64(constraint.Compilations()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "opgate_policy_snapshot_generation",
			Help: "Number of times the snapshot was built; 0 until the first full one.",
		}, func() float64 {
			if s := store.Load(); s != nil {
				return float64(s.Generation())
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "opgate_policy_snapshot_age_seconds",
			Help: "Seconds since the snapshot was last built; -1 until the first full one.",
		}, func() float64 {
			if s := store.Load(); s != nil {
				return now().Sub(s.Built()).Seconds()
			}
			return -1
		}), staleKinds{store})
	return m
}

// staleKinds exports which kinds are stale.
type staleKinds struct{ store *snapshot.Store }

var watchStale = prometheus.NewDesc("opgate_watch_stale",
	"Whether the snapshot may be too old in a kind, so that reviews are held (1) or not (0), by resource.",
	[]string{"resource"}, nil)

// Describe implements prometheus.Collector.
func (staleKinds) Describe(to chan<- *prometheus.Desc) { to <- watchStale }

// Collect implements prometheus.Collector.
func (s staleKinds) Collect(to chan<- prometheus.Metric) {
	stale := s.store.Stale()
	for _, kind := range s.store.Followed() {
		value := 0.0
		if slices.Contains(stale, kind) {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(watchStale, prometheus.GaugeValue, value, kind.Resource)
	}
}

// observe counts one answered review. Operations that the API server does not know are counted as such, so
// that a forged review cannot make label values.
func (m *Metrics) observe(kind, operation string, v *verdict.Verdict, took time.Duration) {
	switch operation {
	case "CREATE", "UPDATE", "DELETE", "CONNECT":
	default:
		operation = "unknown"
	}
	rule := ""
	if len(v.Reasons) > 0 {
		rule = string(v.Reasons[0].Rule)
	}
	m.decisions.WithLabelValues(kind, operation, v.Decision.String(), rule).Inc()
	m.duration.WithLabelValues(kind).Observe(took.Seconds())
}

// overridden counts an override. A verdict has one warning for each reason that was set aside.
func (m *Metrics) overridden(v *verdict.Verdict) {
	if overrides := v.Overrides(); len(overrides) > 0 {
		m.overrides.WithLabelValues(string(overrides[0].Rule)).Inc()
	}
}
