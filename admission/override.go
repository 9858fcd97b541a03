package admission

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"

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
	on []verdict.PolicyRef) string {
	needs := make([]dependency.Need, len(on))
	for i, source := range on {
		needs[i].Rights = []dependency.Right{rightTo(verb, source)}
	}
	missing := g.missing(ctx, user, needs)
	switch {
	case missing.questions > 0:
		return fmt.Sprintf("it needs the verb %s on %d policies and constraints, and at most %d rights are checked",
			verb, missing.questions, dependency.MaxQuestions)
	case len(missing.needs) == 0:
		return ""
	case missing.unknown[0]:
		return "the right to " + verb + " could not be checked; try again"
	}
	right := missing.needs[0].Rights[0]
	of := right.Resource + " " + right.Name
	if right.Namespace != "" {
		of += " in namespace " + right.Namespace
	}
	return fmt.Sprintf("it needs the verb %s on %s", verb, of)
}

// rightTo returns the right to a verb on a policy or Constraint.
func rightTo(verb string, source verdict.PolicyRef) dependency.Right {
	return dependency.Right{Verb: verb, Group: groups[source.Kind], Resource: resources[source.Kind],
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
