package admission

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules"
)

// VerbOverride is the RBAC verb on operatorpolicies, and on constraints, that lets a user approve a plan which they
// refuse.
const VerbOverride = "override"

// overrideTimeout bounds the break-glass check within the 5 s that the API server waits for a webhook.
const overrideTimeout = 3 * time.Second

// Authorizer tells whether a user has the verb override on a policy or Constraint.
type Authorizer interface {
	MayOverride(ctx context.Context, user *authenticationv1.UserInfo, guard rules.Guard) (bool, error)
}

// SubjectAccessReviews asks the API server.
type SubjectAccessReviews struct {
	Client authorizationclient.SubjectAccessReviewInterface
}

// MayOverride makes one SubjectAccessReview.
func (a SubjectAccessReviews) MayOverride(ctx context.Context, user *authenticationv1.UserInfo, guard rules.Guard) (bool, error) {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	answer, err := a.Client.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: groups[guard.Kind], Resource: resources[guard.Kind], Verb: VerbOverride,
			Namespace: guard.Namespace, Name: guard.Name,
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether %s may override: %w", user.Username, err)
	}
	return answer.Status.Allowed && !answer.Status.Denied, nil
}

// How RBAC names the kinds of guards.
var (
	groups    = map[string]string{rules.GuardPolicy: policyv1beta2.Group, rules.GuardConstraint: constraintv1.Group}
	resources = map[string]string{rules.GuardPolicy: resourcePolicies, rules.GuardConstraint: resourceConstraints}
)

// override is break-glass: a refused approval passes if its reason was given with it and the user has the
// verb override on every policy that refuses. Whatever goes wrong on the way leaves the refusal as it is.
func (g *Gate) override(ctx context.Context, v *rules.Verdict, ns *rules.Namespace, user *authenticationv1.UserInfo, reason string) rules.Verdict {
	refused := func(why string) rules.Verdict {
		v.Warnings = append(v.Warnings, rules.Reason{Rule: rules.RulePlanOverride,
			Message: "the override was not accepted (" + string(rules.RulePlanOverride) + "): " + why})
		return *v
	}
	needs, ok := v.OverrideNeeds(ns)
	if !ok {
		return refused("what refuses the write cannot be overridden")
	}
	ctx, cancel := context.WithTimeout(ctx, overrideTimeout)
	defer cancel()
	for _, guard := range needs {
		allowed, err := g.authorizer.MayOverride(ctx, user, guard)
		if err != nil {
			g.log.Error(err, "override not checked", "user", user.Username)
			return refused("the right to override could not be checked; try again")
		}
		if !allowed {
			return refused(fmt.Sprintf("it needs the verb %s on %s", VerbOverride, rightOn(guard)))
		}
	}
	g.log.Info("refusal overridden", "object", v.Object, "user", user.Username, "reason", reason)
	return v.Overridden(reason)
}

// rightOn names a guard as somebody needs to who grants a right on it.
func rightOn(guard rules.Guard) string {
	if guard.Namespace == "" {
		return resources[guard.Kind] + " " + guard.Name
	}
	return resources[guard.Kind] + " " + guard.Name + " in namespace " + guard.Namespace
}
