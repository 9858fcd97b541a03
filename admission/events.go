package admission

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/verdict"
)

// stored is an object that exists, as the regarding object of an event.
type stored struct {
	gvk  schema.GroupVersionKind
	meta *olm.ObjectMeta
}

func storedSubscription(req *request[olm.Subscription, olm.Subscription]) stored {
	return stored{olm.SubscriptionGVK, &req.OldObject.Metadata}
}

func storedPlan[New any](req *request[New, olm.InstallPlan]) stored {
	return stored{olm.InstallPlanGVK, &req.OldObject.Metadata}
}

func storedOperatorPolicy(req *request[json.RawMessage, json.RawMessage]) stored {
	var head struct {
		Metadata olm.ObjectMeta `json:"metadata"`
	}
	if req.OldObject == nil || json.Unmarshal(*req.OldObject, &head) != nil {
		return stored{} // an event needs the UID
	}
	return stored{policyv1beta2.GroupVersion.WithKind(policyv1beta2.Kind), &head.Metadata}
}

// report records an event on the object of a review: that it was refused, or that a plan is approved by a user, if only
// with an override. The loop reports what it does itself. Reviews that change nothing, or that the API server has not
// sent, cause no event, nor do refusals that are not about the object.
func (e *endpoint[New, Old]) report(req *request[New, Old], v *verdict.Verdict) {
	if e.stored == nil || !req.update() || !req.stores() || e.gate.byOpgate(&req.User) {
		return
	}
	event, ok := eventOf(v, req.User.Username)
	if !ok {
		return
	}
	about := e.stored(req)
	if about.meta == nil || about.meta.UID == "" {
		return
	}
	event.Regarding = corev1.ObjectReference{APIVersion: about.gvk.GroupVersion().String(), Kind: about.gvk.Kind,
		Namespace: about.meta.Namespace, Name: about.meta.Name, UID: types.UID(about.meta.UID)}
	e.gate.Events.Record(event)
}

// eventOf returns the event for a verdict on an update, without its object. Only the verdict on an approval has
// dispositions.
func eventOf(v *verdict.Verdict, user string) (event events.Event, ok bool) {
	switch {
	case v.Decision != verdict.Allow:
		return events.Event{Reason: events.Denied, Action: events.Update, Warning: true, Note: v.Note(events.MaxNote),
			Related: v.Policy().Reference()}, len(v.Reasons) > 0 && !v.Reasons[0].Rule.OfGate()
	case len(v.CSVs) == 0:
		return events.Event{}, false
	}
	if note := v.OverrideNote(user, events.MaxNote); note != "" {
		return events.Event{Reason: events.Overridden, Action: events.Approve, Warning: true, Note: note,
			Related: v.Policy().Reference()}, true
	}
	return events.Event{Reason: events.Approved, Action: events.Approve, Note: v.ApprovalNote(user, events.MaxNote)},
		true
}
