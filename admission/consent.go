package admission

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/opgate/opgate/rules"
)

// VerbApprove is the RBAC verb on operatorpolicies that lets a user consent, by an annotation of the plan, to changes that
// spec.consent of the policy holds.
const VerbApprove = "approve"

// mayConsent returns why a user may not consent to what a plan changes, or "" if they may or do not try to. Without a user that the API
// server authenticated, no SubjectAccessReview is made (threat G20).
func (g *Gate) mayConsent(ctx context.Context, in *rules.PlanUpdateInput, user *authenticationv1.UserInfo) string {
	if !in.ConsentAsked() {
		return ""
	}
	if user == nil {
		return "the caller is not known to be the API server"
	}
	return g.lacks(ctx, user, VerbApprove, in.ConsentNeeds())
}
