package admission

import (
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/opgate/opgate/admission/olmidentity"
	"github.com/opgate/opgate/rules"
)

// explainDoubt completes a refusal of a user that has OLM's name but does not count as OLM, and that was judged like any other user
// (threat O16). While the identity is being verified, the refusal is one to retry: it may be OLM. Later it states what is
// wrong with the identity and how an administrator fixes it: OLM shows refusals on the Subscription.
func (g *Gate) explainDoubt(user *authenticationv1.UserInfo, v *rules.Verdict) {
	reason, doubted := g.olm.Untrusted(user)
	if !doubted {
		return
	}
	if reason.Reason == olmidentity.Unverified {
		*v = rules.Verdict{Object: v.Object, Decision: rules.Hold, Reasons: []rules.Reason{{
			Decision: rules.Hold, Rule: rules.RuleGateNotReady,
			Message: fmt.Sprintf("opgate is not ready (%s): %s; try again in a few seconds", rules.RuleGateNotReady, reason.Problem)}}}
		return
	}
	v.Reasons = append(v.Reasons, rules.Reason{Decision: rules.Hold, Rule: rules.RuleGateOLMIdentity,
		Message: fmt.Sprintf("%s is not trusted as OLM (%s): %s", user.Username, rules.RuleGateOLMIdentity, reason.Problem)})
}
