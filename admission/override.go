package admission

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// VerbOverride is the RBAC verb on operatorpolicies, and on constraints, that lets a user approve a plan, or write
// another object, which they refuse, and add exceptions to them.
const VerbOverride = "override"

// The resources of policies and constraints in RBAC.
var (
	groups = map[string]string{verdict.KindOperatorPolicy: policyv1beta2.Group,
		verdict.KindConstraint: constraintv1.Group}
	resources = map[string]string{verdict.KindOperatorPolicy: snapshot.OperatorPolicies.Resource,
		verdict.KindConstraint: snapshot.Constraints.Resource}
)

// override is break-glass: a refused approval, or another refused write, passes if its reason was set by the same
// request and the user has the verb override on every policy that refuses. Every error leaves the refusal as it is, and
// so does a write that asks for none. Without a user that the API server authenticated, no SubjectAccessReview is made.
func (g *Gate) override(ctx context.Context, v *verdict.Verdict, ns *state.Namespace, user *authenticationv1.UserInfo,
	asked rules.Override) verdict.Verdict {
	if asked.Reason == "" || v.Decision == verdict.Allow {
		return *v
	}
	refused := func(why string) verdict.Verdict {
		v.Warnings = append(v.Warnings, verdict.Reason{Rule: asked.Rule,
			Message: "the override was not accepted (" + string(asked.Rule) + "): " + why})
		return *v
	}
	if asked.Ended != "" {
		return refused(asked.Ended)
	}
	if user == nil {
		return refused("the caller is not known to be the API server")
	}
	needs, ok := rules.OverrideNeeds(v, ns)
	if !ok {
		return refused("what refuses the write cannot be overridden")
	}
	if why := g.lacks(ctx, user, VerbOverride, needs); why != "" {
		return refused(why)
	}
	g.Log.WithValues(objectKeys(v)...).WithValues(reasonKeys(v)...).Info("refusal overridden", "user", user.Username,
		"reason", asked.Reason)
	return v.Overridden(asked.Rule, asked.Reason, asked.Until)
}

// lacks returns why a user does not have a verb on all of the given objects, or "". An error counts as a missing right.
func (g *Gate) lacks(ctx context.Context, user *authenticationv1.UserInfo, verb string,
	needs []verdict.PolicyRef) string {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	if len(needs) > dependency.MaxQuestions {
		return fmt.Sprintf("it needs the verb %s on %d policies and constraints, and at most %d rights are checked",
			verb, len(needs), dependency.MaxQuestions)
	}
	for _, source := range needs {
		allowed, err := g.Authorizer.May(ctx, user, &authorizationv1.ResourceAttributes{
			Group: groups[source.Kind], Resource: resources[source.Kind], Verb: verb, Namespace: source.Namespace,
			Name: source.Name})
		if err != nil {
			g.Log.Error(err, "right not checked", "verb", verb, "user", user.Username)
			return "the right to " + verb + " could not be checked; try again"
		}
		if !allowed {
			return fmt.Sprintf("it needs the verb %s on %s", verb, rightOn(source))
		}
	}
	return ""
}

// rightOn names a policy or constraint as an RBAC rule on it would.
func rightOn(source verdict.PolicyRef) string {
	if source.Namespace == "" {
		return resources[source.Kind] + " " + source.Name
	}
	return resources[source.Kind] + " " + source.Name + " in namespace " + source.Namespace
}

// rightToOverride returns the right to set aside what a policy or Constraint refuses, which its exceptions do.
func rightToOverride(source verdict.PolicyRef) dependency.Right {
	return dependency.Right{Verb: VerbOverride, Group: groups[source.Kind], Resource: resources[source.Kind],
		Namespace: source.Namespace, Name: source.Name}
}

// VerbApprove is the RBAC verb on operatorpolicies that lets a user consent, by an annotation of the plan, to changes
// that spec.consent of the policy holds.
const VerbApprove = "approve"

// mayConsent returns why a user may not consent to what a plan changes, or "" if they may or do not try to. Without a
// user that the API server authenticated, no SubjectAccessReview is made.
func (g *Gate) mayConsent(ctx context.Context, in *rules.PlanUpdateInput, user *authenticationv1.UserInfo) string {
	if !in.ConsentAsked() {
		return ""
	}
	if user == nil {
		return "the caller is not known to be the API server"
	}
	return g.lacks(ctx, user, VerbApprove, in.ConsentNeeds())
}
