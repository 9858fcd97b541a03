package rules

import (
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleSubscriptionHeldPlan is on what OLM plans together with a new Subscription.
const RuleSubscriptionHeldPlan verdict.RuleID = "subscription/held-plan"

var subscriptionHeldPlan = verdict.Rule{ID: RuleSubscriptionHeldPlan, Outcomes: verdict.Warns,
	Summary: "a plan for other operators of the namespace is held, and OLM puts what a new Subscription asks for into one plan with them"}

// judgeHeldPlans warns of a first installation beside a plan that is held. OLM resolves all Subscriptions of a
// namespace together, so that its next plan has both, and is held as well.
func judgeHeldPlans(in *SubscriptionInput, v *verdict.Verdict) {
	pkg := in.Subscription.Spec.Package
	if in.Old != nil || in.ByOLM || in.Namespace.InstalledOf(pkg, "") != "" {
		return
	}
	for _, plan := range in.Namespace.Plans() {
		if !in.Namespace.Waits(plan) {
			continue
		}
		judged := JudgePlan(PlanInput{Plan: plan, Namespace: in.Namespace, Now: in.Now, Interrupt: in.Interrupt})
		ours := func(c verdict.CSV) bool { return c.Package == pkg }
		if judged.Decision == verdict.Allow || slices.ContainsFunc(judged.CSVs, ours) {
			continue
		}
		v.Warn(verdict.Reason{Rule: RuleSubscriptionHeldPlan, Field: in.path("name"), Message: verdict.Sentence(
			pendingText(&judged)+" is held, and OLM puts package "+text.Quote(pkg)+" into one plan with it",
			RuleSubscriptionHeldPlan,
			judged.Reasons[0].Message+"; until that is settled the package is not installed in this namespace")})
	}
}

// pendingText names a plan that waits, and what is in it.
func pendingText(v *verdict.Verdict) string {
	var names []string
	for _, c := range v.CSVs {
		names = append(names, text.Name(c.CSV))
	}
	return "pending " + v.Object + " (" + strings.Join(names, ", ") + ")"
}
