package admission

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/opgate/opgate/rules"
)

// judgeEscalation asks whether the author of a Policy has the rights that its templates need (threat O14). An error is never a yes.
func (g *Gate) judgeEscalation(ctx context.Context, user *authenticationv1.UserInfo, needed []rules.TemplateRight, v *rules.Verdict) {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	for _, right := range needed {
		allowed, err := g.authorizer.May(ctx, user, &authorizationv1.ResourceAttributes{
			Verb: "create", Group: right.Group, Resource: right.Resource, Namespace: right.Namespace})
		if err != nil {
			g.log.Error(err, "right to a template not checked", "user", user.Username)
		}
		if err != nil || !allowed {
			v.Lacking(right, err != nil)
		}
	}
}
