package operatorpolicy

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	// holdDelay is how long a plan must be held for the same reason before that is reported: OLM's writes arrive one
	// after another, and the contents of a plan are read after it, so the first verdicts on a plan often stand for
	// milliseconds.
	holdDelay = 500 * time.Millisecond
	// recordDelay is the delay before a hold that the recorder dropped is recorded again.
	recordDelay = 30 * time.Second
)

// hold is a plan that the loop did not approve when it last reconciled its namespace.
type hold struct {
	plan   *olm.InstallPlan
	note   string
	policy verdict.PolicyRef
	// since is when it was first held for this reason; reported is set once that is recorded.
	since    time.Time
	reported bool
}

// holdOf returns the hold of a plan that is not approved.
func holdOf(plan *olm.InstallPlan, judged *rules.Approval) hold {
	return hold{plan: plan, note: judged.Note(events.MaxNote), policy: judged.Verdict.Policy()}
}

// hold sets the held plans. Those that are held for the same reason as before keep what is known of them.
func (n *namespaceState) hold(held []hold, now time.Time) {
	before := n.held
	n.held = make(map[types.UID]hold, len(held))
	for _, next := range held {
		uid := types.UID(next.plan.Metadata.UID)
		next.since = now
		if last, known := before[uid]; known && last.note == next.note {
			next.since, next.reported = last.since, last.reported
		}
		n.held[uid] = next
	}
}

// reportHolds records an event on each held plan, once for each reason. After is the delay until it is called again; 0
// for not before something changes.
func (r *reconciler) reportHolds(namespace string, held []hold) (after time.Duration) {
	now, state := r.Now(), r.state.namespace(namespace)
	state.hold(held, now)
	for uid, one := range state.held {
		if one.reported {
			continue
		}
		again := holdDelay - now.Sub(one.since)
		if again <= 0 {
			one.reported = r.Events.Record(events.Event{Regarding: planReference(one.plan),
				Related: one.policy.Reference(),
				Reason:  events.Held, Action: events.Approve, Warning: true, Note: one.note})
			state.held[uid] = one
			again = recordDelay
		}
		if !one.reported {
			after = earlier(after, again)
		}
	}
	return after
}

// reportApproval records an event on a plan that the loop has approved.
func (r *reconciler) reportApproval(plan *olm.InstallPlan, v *verdict.Verdict) {
	r.Events.Record(events.Event{Regarding: planReference(plan), Reason: events.Approved, Action: events.Approve,
		Note: v.ApprovalNote("", events.MaxNote)})
}

func planReference(plan *olm.InstallPlan) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: olm.V1alpha1.String(), Kind: olm.KindInstallPlan,
		Namespace: plan.Metadata.Namespace,
		Name:      plan.Metadata.Name, UID: types.UID(plan.Metadata.UID)}
}
