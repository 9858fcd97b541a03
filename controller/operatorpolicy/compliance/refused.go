package compliance

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

const reasonRefused = "InstallPlanRefused"

// refused adds the running plans that cannot finish to the condition on InstallPlans: the plan of the Subscription,
// whatever refuses its steps, and those of other operators of which this policy refuses a step, such as a dependency.
// OLM repeats a refused step for as long as the plan exists, so a forbidden operator would be installed as soon as no
// replica answers. That is why such a plan is NonCompliant.
func (e *evaluation) refused(out Outcome) Outcome {
	i := slices.IndexFunc(out.Conditions, func(f Condition) bool { return f.Type == TypeInstallPlan })
	if i < 0 {
		return out
	}
	f := &out.Conditions[i]
	followed, _ := e.plan()
	var messages []string
	for _, plan := range e.Namespace.Plans() {
		var why []string
		for _, r := range rules.RefusedSteps(plan, e.Namespace, e.Now) {
			if plan == followed || r.Source == e.Rules.Source() {
				why = append(why, r.Message)
			}
		}
		if len(why) == 0 {
			continue
		}
		messages = append(messages, e.unfinished(plan, why))
		f.Related = withPlan(f.Related, e.related(kindInstallPlan, plan.Metadata, policyv1beta2.NonCompliant,
			"The InstallPlan is "+plan.Status.Phase))
	}
	if len(messages) > 0 {
		f.Status, f.Reason, f.Message = metav1.ConditionFalse, reasonRefused, strings.Join(messages, "; ")
	}
	return out
}

// holding adds the plans that this policy keeps from being approved, and that its Subscription does not wait for, to
// the condition on InstallPlans: such as one that brings its package as a dependency. They do not count: the policy does
// what it is for.
func (e *evaluation) holding(out Outcome) Outcome {
	i := slices.IndexFunc(out.Conditions, func(f Condition) bool { return f.Type == TypeInstallPlan })
	if i < 0 {
		return out
	}
	f := &out.Conditions[i]
	followed, _ := e.plan()
	for _, plan := range e.Namespace.Plans() {
		var why []string
		for _, r := range e.Approvals[plan.Metadata.Name].Reasons {
			if r.Source == e.Rules.Source() {
				why = append(why, r.Message)
			}
		}
		if len(why) == 0 || plan == followed && f.Reason == reasonRequiresApproval {
			continue
		}
		message := "the InstallPlan " + planName(plan) + " for [" +
			text.Names(slices.Sorted(slices.Values(plan.Spec.CSVNames)), maxListed) +
			"] awaits approval, which this policy refuses: " + sentences(why)
		if f.Reason == reasonNoPlans || f.Reason == reasonNothingToPass {
			f.Reason, f.Message = reasonRequiresApproval, message
		} else {
			f.Message += "; " + message
		}
		f.Related = withPlan(f.Related, e.related(kindInstallPlan, plan.Metadata, policyv1beta2.Compliant,
			"The InstallPlan is "+plan.Status.Phase))
	}
	return out
}

// withPlan returns related objects with a plan, which replaces an entry for it, or for none.
func withPlan(related []policyv1beta2.RelatedObject, plan policyv1beta2.RelatedObject) []policyv1beta2.RelatedObject {
	related = slices.DeleteFunc(related, func(r policyv1beta2.RelatedObject) bool {
		return r.Object.Metadata.Name == plan.Object.Metadata.Name || r.Object.Metadata.Name == noName
	})
	return append(related, plan)
}

// unfinished says why an approved plan cannot finish, and what would end it. Deleting the plan is enough where a
// Subscription is Manual: the next one has to be approved. OLM replaces a deleted plan of Automatic Subscriptions by
// one that it approves again.
func (e *evaluation) unfinished(plan *olm.InstallPlan, why []string) string {
	message := "the InstallPlan " + planName(plan) +
		" is approved and cannot finish, since OLM repeats what is refused: " + sentences(why) +
		"; to end that, change what refuses it, or delete the InstallPlan"
	var automatic []string
	for _, s := range e.Namespace.Subscriptions() {
		if s.Status.InstallPlan.Name == plan.Metadata.Name && s.Spec.Package != e.wanted.name {
			automatic = append(automatic, s.Metadata.Namespace+"/"+s.Metadata.Name)
		}
	}
	if len(automatic) > 0 {
		message += " together with the Subscriptions that OLM would write another one for: " +
			text.Names(automatic, maxListed)
	}
	return message + rules.OverrideText(plan, e.Now)
}
