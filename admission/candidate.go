package admission

import (
	"context"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/opgate/opgate/admission/olmidentity"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// form reports whether a write has the form of OLM's, and the object that an event about it regards: the one that is
// written may not exist. OLM installs nothing without a plan and its status, so that other kinds would show no more.
type form[New, Old any] func(req *request[New, Old], v *verdict.Verdict) (about *corev1.ObjectReference, is bool)

// planForm recognizes the plans that OLM creates, which a Subscription owns, also where they are allowed: OLM creates
// few, and an administrator should learn of a wrong identity before there is a policy.
func planForm(req *request[olm.InstallPlanHead, olm.InstallPlan], _ *verdict.Verdict) (*corev1.ObjectReference, bool) {
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

// planStatusForm recognizes refused writes of a status by a component of the control plane, as its name shows: OLM
// writes the status in a request of its own, and users have no reason to. People who are refused one do not count as OLM
// for it.
func planStatusForm(req *request[olm.InstallPlan, olm.InstallPlan], v *verdict.Verdict) (*corev1.ObjectReference, bool) {
	if v.Decision == verdict.Allow || !strings.HasPrefix(req.User.Username, "system:") || !req.update() {
		return nil, false
	}
	return referenceTo(olm.InstallPlanGVK, &req.OldObject.Metadata), true
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
	about, is := e.form(req, v)
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
