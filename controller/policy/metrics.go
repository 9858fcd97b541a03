package policy

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/dependency"
)

// Metrics export the states of Policies and the number of watches, while this replica leads.
type Metrics struct {
	policies *prometheus.GaugeVec

	mu sync.Mutex
	// states are those of the Policies that are exported; nil while another replica leads.
	states map[types.NamespacedName]string
	// open returns the number of watches.
	open func() int
}

// The states of Policies besides those of compliance.
const (
	stateUnknown  = "Unknown"
	stateDisabled = "Disabled"
)

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{policies: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "opgate_policies",
		Help: "Number of Policies by state: Compliant, NonCompliant, Pending, Unknown or Disabled."},
		[]string{"state"})}
	registry.MustRegister(m.policies, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "opgate_ordering_watches",
		Help: "Number of active watches on dependency objects of Policies."}, m.watches))
	return m
}

// changed records a new state of a Policy, nil if it was deleted.
func (m *Metrics) changed(key types.NamespacedName, now *storedPolicy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, counted := m.states[key]
	state := stateOf(now)
	if m.states == nil || before == state {
		return // what changes while the lease is lost is for the next leader to export
	}
	if counted {
		m.policies.WithLabelValues(before).Dec()
		delete(m.states, key)
	}
	if state != "" {
		m.policies.WithLabelValues(state).Inc()
		m.states[key] = state
	}
}

func stateOf(p *storedPolicy) string {
	switch {
	case p == nil:
		return ""
	case p.Disabled():
		return stateDisabled
	case p.Read == nil || p.Read.State == dependency.Unknown:
		return stateUnknown
	}
	return string(p.Read.State)
}

func (m *Metrics) watches() float64 {
	m.mu.Lock()
	open := m.open
	m.mu.Unlock()
	if open == nil {
		return 0
	}
	return float64(open())
}

// started begins to export what this replica observes, which is nothing yet.
func (m *Metrics) started(open func() int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states, m.open = map[types.NamespacedName]string{}, open
	for _, state := range []dependency.State{dependency.Compliant, dependency.NonCompliant, dependency.Pending,
		stateUnknown, stateDisabled} {
		m.policies.WithLabelValues(string(state)).Set(0)
	}
}

// stopped removes what the replica that leads now exports.
func (m *Metrics) stopped() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states, m.open = nil, nil
	m.policies.Reset()
}
