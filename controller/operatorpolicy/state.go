package operatorpolicy

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// settleDelay is how long after a policy is deleted nothing is approved because no policy governs it: Argo CD and
// kubectl replace --force create it again within seconds. What a Policy creates is waited for.
const settleDelay = 10 * time.Second

// loopState is what the loop knows of namespaces between two reconciliations, for one term of leadership. The zero
// value is ready for use.
type loopState struct {
	mu sync.Mutex
	// since is the time of the first reconciliation.
	since      time.Time
	namespaces map[string]*namespaceState
	// evaluated is the namespace in which each policy was last evaluated.
	evaluated map[types.NamespacedName]string
	// dependents are the namespaces that were evaluated with the contents of another one, by that one.
	dependents map[string]map[string]struct{}
}

// namespaceState is the state of one namespace. Only one worker at a time reconciles a namespace.
type namespaceState struct {
	// policies were evaluated last; one that has moved since is still among them. lost is when one was last missing,
	// deleted are those that were.
	policies, deleted []types.NamespacedName
	lost              time.Time
	// held are the plans that are not approved, by UID.
	held map[types.UID]hold
	// removed are the stale plans that were deleted.
	removed removal
	// asked are the Subscriptions for whose missing plans the API server was asked.
	asked string
	// refused is since when the API server itself refuses approvals, zero if it does not.
	refused time.Time
	// resync is the next attempt to make OLM resolve again, zero if none is needed.
	resync pendingResync
}

// namespace returns the state of a namespace.
func (s *loopState) namespace(name string) *namespaceState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(name)
}

func (s *loopState) get(name string) *namespaceState {
	if s.namespaces == nil {
		s.namespaces, s.evaluated = map[string]*namespaceState{}, map[types.NamespacedName]string{}
	}
	if s.namespaces[name] == nil {
		s.namespaces[name] = &namespaceState{}
	}
	return s.namespaces[name]
}

// replace sets the policies of a namespace and returns the previous ones that exist in no namespace any more.
func (s *loopState) replace(
	namespace string, policies []*operatorpolicy.Policy, at time.Time,
) (deleted []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.get(namespace)
	if s.since.IsZero() {
		s.since = at
	}
	before := n.policies
	n.policies = nil
	for _, p := range policies {
		name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		n.policies = append(n.policies, name)
		s.evaluated[name] = namespace
	}
	for _, name := range before {
		if s.evaluated[name] == namespace && !slices.Contains(n.policies, name) {
			delete(s.evaluated, name)
			deleted = append(deleted, name)
			n.lost = at
		}
	}
	n.deleted = append(n.deleted, deleted...)
	return deleted
}

// deletionDelay returns the time until the policies of a namespace count as what is wanted there, and why they do not yet; 0
// if none was deleted lately. A process that has just begun does not know. CreatedBy names what creates a policy again,
// empty if nothing does: while something will, the time is never 0.
func (s *loopState) deletionDelay(
	namespace string, at time.Time, createdBy func(types.NamespacedName) string,
) (after time.Duration, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deletionDelayOf(s.get(namespace), s.since, at, createdBy)
}

func (s *loopState) deletionDelayOf(
	n *namespaceState, since, at time.Time, createdBy func(types.NamespacedName) string,
) (after time.Duration, why string) {
	n.deleted = slices.DeleteFunc(n.deleted, func(name types.NamespacedName) bool {
		by := ""
		if _, exists := s.evaluated[name]; !exists {
			by = createdBy(name)
		}
		if by != "" {
			why = "OperatorPolicy " + text.Name(name.String()) + " was deleted, and " + by + " creates it again"
		}
		return by == ""
	})
	if len(n.deleted) > 0 {
		return settleDelay, why
	}
	lost := n.lost
	if lost.IsZero() {
		lost = since
	}
	return max(0, settleDelay-at.Sub(lost)), "a policy was deleted moments ago, and may be created again"
}

// forget drops the state of a namespace in which nothing is approved, once its policies have settled. After is the
// delay until then.
func (s *loopState) forget(
	namespace string, at time.Time, createdBy func(types.NamespacedName) string,
) (after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.get(namespace)
	if after, _ = s.deletionDelayOf(n, time.Time{}, at, createdBy); after > 0 {
		s.namespaces[namespace] = &namespaceState{lost: n.lost, deleted: n.deleted}
		return after
	}
	delete(s.namespaces, namespace)
	return 0
}

// depends records that a namespace is evaluated with the contents of another one.
func (s *loopState) depends(dependent, on string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dependents == nil {
		s.dependents = map[string]map[string]struct{}{}
	}
	if s.dependents[on] == nil {
		s.dependents[on] = map[string]struct{}{}
	}
	s.dependents[on][dependent] = struct{}{}
}

// takeDependents returns the dependents of a namespace and removes them: their next evaluation adds them again.
func (s *loopState) takeDependents(on string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := slices.Collect(maps.Keys(s.dependents[on]))
	delete(s.dependents, on)
	return taken
}

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
