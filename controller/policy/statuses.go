package policy

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// status writes the status of the Policy if it differs, and reports what changed.
func (rec *reconciliation) status(ctx context.Context, outcomes []dependency.TemplateOutcome) error {
	before := rec.stored.Object
	status, reported := dependency.NextStatus(dependency.StatusInput{Policy: before, Read: rec.read,
		Excluded: rec.excluded(rec.key.Namespace), Outcomes: outcomes, Now: rec.now})
	written, err := rec.writer.Status(ctx, snapshot.Policies, snapshot.InCluster(), before, before.Status, status)
	if !written {
		return err
	}
	log.FromContext(ctx).Info("status written", "policy", rec.key.String(), "compliant", status.ComplianceState,
		"pendingDependencies", status.PendingDependencies)
	rec.report(rec.stored, reported, rec.now.String())
	return err
}

// report records events of a Policy, best effort: the status has all that they say. Those of one occurrence that are
// equal are one.
func (r *reconciler) report(about *storedPolicy, reported []dependency.Event, occurrence string) {
	for _, e := range reported {
		r.Events.Record(events.Event{Regarding: corev1.ObjectReference{APIVersion: policyv1.GroupVersion.String(),
			Kind: policyv1.Kind, Namespace: about.Namespace, Name: about.Name, UID: about.UID},
			Reason: dependency.EventReason, Action: dependency.EventReason, Warning: e.Warning, Note: e.Message,
			Occurrence: occurrence})
	}
}

// reconcileSet writes the status of a PolicySet if it differs.
func (r *reconciler) reconcileSet(ctx context.Context, key types.NamespacedName) error {
	stored := r.Store.Load().PolicySet(key)
	if stored == nil || stored.Read == nil || stored.DeletionTimestamp != nil {
		return nil
	}
	member := func(name string) *dependency.Policy {
		return r.Store.Load().Policy(types.NamespacedName{Namespace: key.Namespace, Name: name}).Known()
	}
	before := stored.Object
	status := dependency.NextSetStatus(stored.Read, &before.Status, member, r.excluded(key.Namespace), r.Now())
	written, err := r.writer.Status(ctx, snapshot.PolicySets, snapshot.InCluster(), before, before.Status, status)
	if written {
		log.FromContext(ctx).Info("status written", "policySet", key.String(), "compliant", status.Compliant)
	}
	return err
}

// Metrics export the states of Policies, while this replica leads, and the number of watches.
type Metrics struct {
	// watches are those of the leader, nil while another replica leads.
	watches atomic.Pointer[watches.Watches]
}

// The states of Policies besides those of compliance.
const (
	stateUnknown  = "Unknown"
	stateDisabled = "Disabled"
)

// NewMetrics registers the metrics of Policies.
func NewMetrics(registry prometheus.Registerer, leading apply.Leading) *Metrics {
	m := &Metrics{}
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "opgate_ordering_watches",
		Help: "Number of active watches on dependency objects of Policies."}, func() float64 {
		if w := m.watches.Load(); w != nil {
			return float64(w.Open())
		}
		return 0
	}), leading.Gauge("opgate_policies",
		"Number of Policies by state: Compliant, NonCompliant, Pending, Unknown or Disabled.", []string{"state"},
		func(s *snapshot.Snapshot, set func(float64, ...string)) {
			states := map[string]int{string(dependency.Compliant): 0, string(dependency.NonCompliant): 0,
				string(dependency.Pending): 0, stateUnknown: 0, stateDisabled: 0}
			for o := range s.AllObjects(snapshot.Policies) {
				states[stateOf(o.Policy())]++
			}
			for state, count := range states {
				set(float64(count), state)
			}
		}))
	return m
}

func stateOf(p *storedPolicy) string {
	switch {
	case p.Disabled():
		return stateDisabled
	case p.Read == nil || p.Read.State == dependency.Unknown:
		return stateUnknown
	}
	return string(p.Read.State)
}
