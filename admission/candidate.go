package admission

import (
	"context"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/admission/olmidentity"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// A write looks like OLM's by its form: a plan that a Subscription owns, a Subscription or a ClusterServiceVersion that
// a plan contains, the status of a plan. By these functions an endpoint reports whether a write does, and the object
// that an event about it regards: the one that was written may not exist.
type form[New, Old any] func(s *snapshot.Snapshot, req *request[New, Old],
	v *verdict.Verdict) (about *corev1.ObjectReference, is bool)

// planForm recognizes the plans that OLM creates, also where they are allowed: OLM creates few, and an administrator
// should learn of a wrong identity before there is a policy.
func planForm(_ *snapshot.Snapshot, req *request[olm.InstallPlanHead, olm.InstallPlan],
	_ *verdict.Verdict) (*corev1.ObjectReference, bool) {
	if req.Operation != string(admissionv1.Create) {
		return nil, false
	}
	for _, o := range req.Object.Metadata.OwnerReferences {
		if o.Kind == olm.SubscriptionGVK.Kind && o.APIVersion == olm.SubscriptionGVK.GroupVersion().String() {
			return &corev1.ObjectReference{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: req.Namespace, Name: o.Name,
				UID: o.UID}, true
		}
	}
	return nil, false
}

// refusedComponent reports whether a write of a component of the control plane was refused, by its name. People are
// refused such writes as well, and are not to count as OLM for it.
func refusedComponent(user *authenticationv1.UserInfo, v *verdict.Verdict) bool {
	return v.Decision != verdict.Allow && strings.HasPrefix(user.Username, "system:")
}

// planStatusForm recognizes refused writes of a status: OLM writes it in a request of its own, and users have no reason
// to.
func planStatusForm(_ *snapshot.Snapshot, req *request[olm.InstallPlan, olm.InstallPlan],
	v *verdict.Verdict) (*corev1.ObjectReference, bool) {
	if !refusedComponent(&req.User, v) || !req.update() {
		return nil, false
	}
	return referenceTo(&req.OldObject.Metadata), true
}

// subscriptionForm recognizes refused Subscriptions for dependencies, which OLM annotates with their plan.
func subscriptionForm(s *snapshot.Snapshot, req *request[olm.Subscription, olm.Subscription],
	v *verdict.Verdict) (*corev1.ObjectReference, bool) {
	plan := req.Object.Metadata.Annotations.GeneratedBy
	if !refusedComponent(&req.User, v) || req.update() || plan == "" {
		return nil, false
	}
	return planWith(s, req.Namespace, func(p *olm.InstallPlan) bool { return p.Metadata.Name == plan }), true
}

// csvForm recognizes refused ClusterServiceVersions: copies, and those that a plan contains.
func csvForm(s *snapshot.Snapshot, req *request[olm.CSV, olm.CSV], v *verdict.Verdict) (*corev1.ObjectReference, bool) {
	if !refusedComponent(&req.User, v) || req.update() {
		return nil, false
	}
	meta := &req.Object.Metadata
	about := planWith(s, req.Namespace,
		func(p *olm.InstallPlan) bool { return p.Spec.Approved && slices.Contains(p.Spec.CSVNames, meta.Name) })
	return about, about != nil || meta.Labels.CopiedFrom != ""
}

func referenceTo(plan *olm.ObjectMeta) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: olm.InstallPlanGVK.GroupVersion().String(),
		Kind:      olm.InstallPlanGVK.Kind,
		Namespace: plan.Namespace, Name: plan.Name, UID: types.UID(plan.UID)}
}

// planWith returns a plan of a namespace, nil if none matches, or none is known yet.
func planWith(s *snapshot.Snapshot, namespace string, matches func(*olm.InstallPlan) bool) *corev1.ObjectReference {
	if s == nil {
		return nil
	}
	for _, plan := range s.Namespace(namespace).Plans() {
		if matches(plan) {
			return referenceTo(&plan.Metadata)
		}
	}
	return nil
}

// reportCandidate completes the answer to a write in the form of OLM's by a user that is not configured as OLM, but
// could be: the refusal, an event, the metric and the log name the user, and the value to set. A user without the verb
// escalate is not treated as OLM: they learn nothing, and only the first of their writes in a minute costs a
// SubjectAccessReview.
func (e *endpoint[New, Old]) reportCandidate(ctx context.Context, req *request[New, Old], v *verdict.Verdict) {
	g, user := e.gate, &req.User
	if e.form == nil || g.Candidates == nil || !req.authenticated || g.byOpgate(user) ||
		!g.Candidates.Possible(user.Username) {
		return
	}
	about, is := e.form(g.Store.Load(), req, v)
	if !is || !g.Candidates.Entitled(user, func() (bool, error) { return g.mayEscalate(ctx, user) }) {
		return
	}
	f := verdict.Finding{Decision: verdict.Hold, Accepted: g.Candidates.Fix(user.Username),
		What: user.Username + " writes this " + e.kind + " as OLM does, but OLM is configured as " +
			g.OLM.Account().Username()}
	if v.Decision != verdict.Allow {
		v.Add(rules.RuleGateOLMIdentity, f)
	}
	if !req.stores() {
		return
	}
	g.Candidates.Wrote(user.Username, e.kind, v.Object)
	if about != nil && about.UID != "" {
		g.Events.Record(events.Event{Regarding: *about, Reason: events.NotOLM, Action: events.Install, Warning: true,
			Note: verdict.Sentence(f.What, rules.RuleGateOLMIdentity, f.Accepted)})
	}
}

func (g *Gate) mayEscalate(ctx context.Context, user *authenticationv1.UserInfo) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	return g.Authorizer.May(ctx, user, olmidentity.Escalate())
}

// explainUntrusted completes a refusal of a user that has OLM's name but does not count as OLM, and that was judged like
// any other user. While the identity is being verified, the refusal is one to retry: it may be OLM. Later
// it states what is wrong with the identity and how an administrator fixes it: OLM shows refusals on the Subscription.
func (g *Gate) explainUntrusted(user *authenticationv1.UserInfo, v *verdict.Verdict) {
	reason, doubted := g.OLM.Untrusted(user)
	if !doubted {
		return
	}
	if reason.Reason == olmidentity.Unverified {
		*v = byGate(v.Object, verdict.Hold, rules.RuleGateNotReady, "opgate is not ready", reason.Problem+tryAgain)
		return
	}
	v.Add(rules.RuleGateOLMIdentity, verdict.Finding{Decision: verdict.Hold,
		What: user.Username + " is not trusted as OLM", Accepted: reason.Problem})
}
