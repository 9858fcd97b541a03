package operatorpolicy

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

const (
	// holdDelay is how long a plan must be held for the same reason before that is reported: OLM's writes arrive one after another, and
	// the contents of a plan are read after it, so the first verdicts on a plan often stand for milliseconds.
	holdDelay = 500 * time.Millisecond
	// recordDelay is the delay before a hold that the recorder dropped is recorded again.
	recordDelay = 30 * time.Second
)

// holds are the plans that the loop did not approve when it last reconciled their namespaces. The zero value is ready for use; it is safe
// for concurrent use.
type holds struct {
	mu sync.Mutex
	of map[string]map[types.UID]hold
}

// hold is one plan.
type hold struct {
	plan   *olm.InstallPlan
	note   string
	policy rules.PolicyRef
	// since is when it was first held for this reason; reported is set once that is recorded.
	since    time.Time
	reported bool
}

// holdOf returns the hold of a plan that is not approved.
func holdOf(plan *olm.InstallPlan, judged *rules.Approval) hold {
	return hold{plan: plan, note: judged.Note(events.MaxNote), policy: judged.Verdict.Policy()}
}

// replace sets the held plans of a namespace, and returns them with what is known of those that are held for the same reason as before.
func (h *holds) replace(namespace string, held []hold, now time.Time) map[types.UID]hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.of[namespace]
	if len(held) == 0 {
		delete(h.of, namespace)
		return nil
	}
	all := make(map[types.UID]hold, len(held))
	for _, next := range held {
		uid := types.UID(next.plan.Metadata.UID)
		next.since = now
		if last, known := before[uid]; known && last.note == next.note {
			next.since, next.reported = last.since, last.reported
		}
		all[uid] = next
	}
	if h.of == nil {
		h.of = map[string]map[types.UID]hold{}
	}
	h.of[namespace] = all
	return all
}

// reportHolds records an event on each held plan, once for each reason. After is the delay until it is called again; 0 for not before
// something changes.
func (r *reconciler) reportHolds(namespace string, held []hold) (after time.Duration) {
	now := r.Now()
	all := r.holds.replace(namespace, held, now)
	for uid, one := range all {
		if one.reported {
			continue
		}
		again := holdDelay - now.Sub(one.since)
		if again <= 0 {
			one.reported = r.Events.Record(events.Event{Regarding: planReference(one.plan), Related: one.policy.Reference(),
				Reason: events.Held, Action: events.Approve, Warning: true, Note: one.note})
			all[uid] = one // no other worker has this namespace
			again = recordDelay
		}
		if !one.reported {
			after = earlier(after, again)
		}
	}
	return after
}

// reportApproval records an event on a plan that the loop has approved.
func (r *reconciler) reportApproval(plan *olm.InstallPlan, v *rules.Verdict) {
	r.Events.Record(events.Event{Regarding: planReference(plan), Reason: events.Approved, Action: events.Approve, Note: v.ApprovalNote("", events.MaxNote)})
}

func planReference(plan *olm.InstallPlan) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: olm.V1alpha1.String(), Kind: olm.KindInstallPlan, Namespace: plan.Metadata.Namespace,
		Name: plan.Metadata.Name, UID: types.UID(plan.Metadata.UID)}
}
