package backstop

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/opgate/opgate/rules/backstop"
)

// The states. They are labels of a metric, so the set is closed.
const (
	// stateEnforced and stateAudited are those in which the API server has all that the policies compile to.
	stateEnforced = "enforced"
	stateAudited  = "audited"
	stateOff      = "off"
	// statePending means that nothing was compared yet: this replica has just started to lead, or may not watch the
	// objects.
	statePending = "pending"
	// stateUnsupported means that the API server serves no admission policies.
	stateUnsupported = "unsupported"
	// stateUnowned means that the ClusterRole that has to own the objects does not exist.
	stateUnowned = "unowned"
	// stateFailed means that the last write failed, and is repeated.
	stateFailed = "failed"
)

// Metrics export the state of the backstop, while this replica leads.
type Metrics struct {
	state, features *prometheus.GaugeVec
	restored        prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		state: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "opgate_backstop_active",
			Help: "Whether the API server holds by itself what the policies compile to (1) or not (0), by state."},
			[]string{"state"}),
		features: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "opgate_backstop_supported",
			Help: "Whether the API server supports a feature that the backstop uses (1) or not (0)."},
			[]string{"feature"}),
		restored: prometheus.NewCounter(prometheus.CounterOpts{Name: "opgate_backstop_restored_total",
			Help: "Total number of times that an object of the backstop was restored after another client changed or deleted it."}),
	}
	registry.MustRegister(m.state, m.features, m.restored)
	return m
}

func (m *Metrics) set(state string) {
	m.state.Reset()
	value := 0.0
	if state == stateEnforced || state == stateAudited {
		value = 1
	}
	m.state.WithLabelValues(state).Set(value)
}

func (m *Metrics) supported(f backstop.Features) {
	for feature, supported := range map[string]bool{"validatingadmissionpolicy": f.ValidatingAdmissionPolicy,
		"mutatingadmissionpolicy": f.MutatingAdmissionPolicy, "semver": f.Semver} {
		value := 0.0
		if supported {
			value = 1
		}
		m.features.WithLabelValues(feature).Set(value)
	}
}
