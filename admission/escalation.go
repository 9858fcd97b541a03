package admission

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/ordering"
)

// judgeEscalation refuses a Policy with templates that its author may not create: the loop applies them with rights of its own,
// which are not the author's to lend. Templates that stay as they are were somebody else's to answer for.
func (g *Gate) judgeEscalation(ctx context.Context, user *authenticationv1.UserInfo, policy, old *policyv1.Policy, v *rules.Verdict) {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	var asked []authorizationv1.ResourceAttributes
	for _, t := range newTemplates(policy, old) {
		right := rightFor(t)
		if slices.Contains(asked, right) {
			continue
		}
		asked = append(asked, right)
		allowed, err := g.authorizer.May(ctx, user, &right)
		if err != nil {
			g.log.Error(err, "right to a template not checked", "user", user.Username)
			allowed = false
		}
		if !allowed {
			v.Escalation(fmt.Sprintf("spec.policy-templates[%d]", t.Index), t.Ref.String(), rightText(&right), err)
		}
	}
}

// newTemplates are those of a Policy that its stored form does not have. Of a Policy that is disabled nothing is made; who
// enables it is asked.
func newTemplates(policy, old *policyv1.Policy) []ordering.Template {
	if policy.Spec.Disabled {
		return nil
	}
	known := map[ordering.Ref][]byte{}
	if old != nil && !old.Spec.Disabled && old.Spec.RemediationAction == policy.Spec.RemediationAction {
		for _, t := range ordering.Read(old).Templates {
			known[t.Ref] = old.Spec.PolicyTemplates[t.Index].ObjectDefinition.Raw
		}
	}
	return slices.DeleteFunc(ordering.Read(policy).Templates, func(t ordering.Template) bool {
		before, stays := known[t.Ref]
		return t.Ref.Kind == "" || stays && bytes.Equal(before, policy.Spec.PolicyTemplates[t.Index].ObjectDefinition.Raw)
	})
}

// rightFor is the right to create what a template makes. Kinds of policies belong to the namespace of their Policy; of others it
// is not known here, and whoever may create them anywhere may create them there.
func rightFor(t ordering.Template) authorizationv1.ResourceAttributes {
	plural, singular := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: t.Ref.Group, Kind: t.Ref.Kind})
	right := authorizationv1.ResourceAttributes{Verb: "create", Group: t.Ref.Group, Resource: plural.Resource}
	if t.Ref.Group == ordering.GatekeeperConstraintGroup { // which has no plurals
		right.Resource = singular.Resource
	}
	if t.Ref.Group == policyv1.Group {
		right.Namespace = t.Ref.Namespace
	}
	return right
}

func rightText(right *authorizationv1.ResourceAttributes) string {
	resource := schema.GroupResource{Group: right.Group, Resource: right.Resource}.String()
	if right.Namespace == "" {
		return "create " + resource + " in the whole cluster"
	}
	return "create " + resource + " in namespace " + right.Namespace
}
