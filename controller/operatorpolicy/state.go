package operatorpolicy

import (
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/snapshot"
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
	// missing are the Subscriptions whose plans are missing, in this state since missingSince.
	missing      string
	missingSince time.Time
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

// replace sets the policies of a namespace, and records the previous ones that exist in no namespace any more.
func (s *loopState) replace(namespace string, policies []*operatorpolicy.Policy, at time.Time) {
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
			n.deleted = append(n.deleted, name)
			n.lost = at
		}
	}
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

// stateUnknown counts policies that were not evaluated yet, stateUnreadable those that do not decode, or do not show
// what they govern.
const (
	stateUnknown    policyv1beta2.ComplianceState = "Unknown"
	stateUnreadable policyv1beta2.ComplianceState = "Unreadable"
)

// NewMetrics registers the metrics; those that name policies with a registry of their own, since not every user may
// read it.
func NewMetrics(registry, named prometheus.Registerer, leading apply.Leading) *Metrics {
	registry.MustRegister(leading.Gauge("opgate_operatorpolicies",
		"Number of OperatorPolicies by state: Compliant, NonCompliant, Unknown or Unreadable.", []string{"state"},
		func(s *snapshot.Snapshot, set func(float64, ...string)) {
			numbers := map[policyv1beta2.ComplianceState]int{policyv1beta2.Compliant: 0, policyv1beta2.NonCompliant: 0,
				stateUnknown: 0, stateUnreadable: 0}
			for p := range policiesOf(s) {
				numbers[stateOf(p)]++
			}
			for state, number := range numbers {
				set(float64(number), string(state))
			}
		}))
	// Name and labels are those of the existing OperatorPolicy controller, which dashboards read.
	named.MustRegister(leading.Gauge("cluster_policy_governance_info",
		"Compliance of a policy: 0 for Compliant, 1 for NonCompliant, -1 for unknown.",
		[]string{"kind", "policy", "policy_namespace", "severity"},
		func(s *snapshot.Snapshot, set func(float64, ...string)) {
			values := map[policyv1beta2.ComplianceState]float64{policyv1beta2.Compliant: 0, policyv1beta2.NonCompliant: 1}
			for p := range policiesOf(s) {
				value, severity := -1., ""
				if p.Object != nil {
					severity = string(p.Object.Spec.Severity)
					if known, ok := values[p.Object.Status.Compliant]; ok {
						value = known
					}
				}
				set(value, policyv1beta2.Kind, p.Name, p.Namespace, severity)
			}
		}))
	return newPending(registry, leading)
}

func stateOf(p *operatorpolicy.Policy) policyv1beta2.ComplianceState {
	if p.Object == nil || p.AnyPackage || p.AnyNamespace {
		return stateUnreadable
	}
	switch state := p.Object.Status.Compliant; state {
	case policyv1beta2.Compliant, policyv1beta2.NonCompliant:
		return state
	default:
		return stateUnknown
	}
}

// policiesOf returns all policies of a snapshot, each once: one that gets another namespace is in both for a moment.
func policiesOf(s *snapshot.Snapshot) iter.Seq[*operatorpolicy.Policy] {
	return func(yield func(*operatorpolicy.Policy) bool) {
		seen := map[string]bool{}
		for _, namespace := range slices.Compact(slices.Concat([]string{""}, s.Governed())) {
			for _, p := range s.Namespace(namespace).Policies() {
				if p.Concerns() != namespace || seen[p.Source()] {
					continue
				}
				if seen[p.Source()] = true; !yield(p) {
					return
				}
			}
		}
	}
}
