package operatorpolicy

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// Metrics export the states of policies and the plans that wait for approval, and count interventions.
type Metrics struct {
	*pending
	compliance   *prometheus.GaugeVec
	states       *prometheus.GaugeVec
	intervention prometheus.Counter
	// exported is what is exported of each policy; mu guards it, too.
	exported map[types.NamespacedName]exported
	// exceptions is when the first exception ends, over all policies of a kind; ends has that of each with one in
	// force.
	exceptions *prometheus.GaugeVec
	ends       map[string]map[types.NamespacedName]time.Time
}

// exported are the labels of the series of a policy.
type exported struct {
	state    policyv1beta2.ComplianceState
	severity policyv1beta2.Severity
}

// NewMetrics registers the metrics; those that name policies with a registry of their own, since not every user may
// read it.
func NewMetrics(registry, named prometheus.Registerer) *Metrics {
	m := &Metrics{pending: newPending(registry),
		intervention: prometheus.NewCounter(prometheus.CounterOpts{Name: "opgate_loop_interventions_total",
			Help: "Total number of Subscriptions repaired after they lost their ClusterServiceVersion."}),
		// Name and labels are those of the existing OperatorPolicy controller, which dashboards read.
		compliance: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cluster_policy_governance_info",
			Help: "Compliance of a policy: 0 for Compliant, 1 for NonCompliant, -1 for unknown."},
			[]string{"kind", "policy", "policy_namespace", "severity"}),
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "opgate_operatorpolicies",
			Help: "Number of OperatorPolicies by state: Compliant, NonCompliant, Unknown or Unreadable."},
			[]string{"state"}),
		exported: map[types.NamespacedName]exported{},
		exceptions: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "opgate_exception_expiry_timestamp_seconds",
			Help: "Seconds since 1970 at which the first exception in force ends, by kind of policy."},
			[]string{"kind"}),
		ends: map[string]map[types.NamespacedName]time.Time{},
	}
	registry.MustRegister(m.states, m.intervention, m.exceptions)
	named.MustRegister(m.compliance)
	return m
}

// stateUnknown counts policies that were not evaluated yet, stateUnreadable those that do not decode, or do not show
// what they govern.
const (
	stateUnknown    policyv1beta2.ComplianceState = "Unknown"
	stateUnreadable policyv1beta2.ComplianceState = "Unreadable"
)

// state exports the state of a policy. A policy whose severity changed still has one series.
func (m *Metrics) state(p *operatorpolicy.Policy, state policyv1beta2.ComplianceState) {
	value, known := map[policyv1beta2.ComplianceState]float64{policyv1beta2.Compliant: 0,
		policyv1beta2.NonCompliant: 1}[state]
	if !known {
		value, state = -1, stateUnknown
	}
	var severity policyv1beta2.Severity
	if p.Object != nil {
		severity = p.Object.Spec.Severity
	}
	if p.Object == nil || p.AnyPackage || p.AnyNamespace {
		state = stateUnreadable
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key, next := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, exported{state, severity}
	if m.exported[key] != next {
		m.remove(key)
		m.exported[key] = next
		m.states.WithLabelValues(string(state)).Inc()
	}
	m.compliance.WithLabelValues(policyv1beta2.Kind, p.Name, p.Namespace, string(severity)).Set(value)
}

func (m *Metrics) forget(namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	m.remove(key)
	m.setEnd(policyv1beta2.Kind, key, time.Time{})
}

// ExceptionEnd exports when the first exception in force of a policy or a Constraint ends; zero if none is.
func (m *Metrics) ExceptionEnd(kind string, key types.NamespacedName, end time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setEnd(kind, key, end)
}

func (m *Metrics) setEnd(kind string, key types.NamespacedName, end time.Time) {
	ends := m.ends[kind]
	if ends[key].Equal(end) {
		return
	}
	if ends == nil {
		ends = map[types.NamespacedName]time.Time{}
		m.ends[kind] = ends
	}
	if delete(ends, key); !end.IsZero() {
		ends[key] = end
	}
	if len(ends) == 0 {
		m.exceptions.DeleteLabelValues(kind)
		return
	}
	first := slices.MinFunc(slices.Collect(maps.Values(ends)), time.Time.Compare)
	m.exceptions.WithLabelValues(kind).Set(float64(first.Unix()))
}

// remove removes the series of a policy. A partial match would compare all series.
func (m *Metrics) remove(key types.NamespacedName) {
	last, found := m.exported[key]
	if !found {
		return
	}
	m.compliance.DeleteLabelValues(policyv1beta2.Kind, key.Name, key.Namespace, string(last.severity))
	m.states.WithLabelValues(string(last.state)).Dec()
	delete(m.exported, key)
}
