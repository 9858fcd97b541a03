package rules

import (
	"slices"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// steps returns the plans that the write may be a step of. A name proves nothing: before a policy governs the
// namespace, a user who may create plans may choose any name (threat O9). OLM writes for the plans that it runs. A
// ServiceAccount writes for plans that name it, and since that account belongs to a tenant, only the contents of the
// plan.
func (in *CSVInput) steps() []carrier.Bundle {
	if in.Old != nil {
		return nil
	}
	var running, late []carrier.Bundle
	for _, plan := range in.Namespace.Plans() {
		if !in.ByOLM && !plan.RunsAs(in.User) {
			continue
		}
		step, ok := carrier.OfStep(in.New, plan, in.Namespace, in.ByOLM)
		if !ok {
			continue
		}
		if plan.Running() && plan.Brings(step.Name) {
			running = append(running, step)
		} else if in.ByOLM {
			late = append(late, step) // OLM writes for installing plans: either the snapshot is stale, or OLM is
		}
	}
	if len(running) == 0 {
		running = late
	}
	return exactOrAll(running)
}

// exactOrAll returns the steps with exactly the written contents, or all steps if there are none.
func exactOrAll(steps []carrier.Bundle) []carrier.Bundle {
	other := func(s carrier.Bundle) bool { return !s.Exact }
	if exact := slices.DeleteFunc(slices.Clone(steps), other); len(exact) > 0 {
		return exact
	}
	return steps
}

// judgeSteps judges the steps of running plans. Of several plans with exactly these contents, one allowed plan is
// enough; if it is not known which plan the write is for, all of them must be allowed.
func (in *CSVInput) judgeSteps(steps []carrier.Bundle, budget *constraint.Budget, v *verdict.Verdict) {
	verdicts := make([]verdict.Verdict, len(steps))
	for i := range steps {
		bundle.JudgeStep(&steps[i], in.Namespace, in.Now, budget, &verdicts[i])
	}
	judged := verdicts
	if steps[0].Exact {
		mildest := slices.MinFunc(verdicts, func(a, b verdict.Verdict) int { return int(a.Decision) - int(b.Decision) })
		judged = []verdict.Verdict{mildest}
	}
	for _, one := range judged {
		v.Warnings = append(v.Warnings, one.Warnings...)
		for _, r := range one.Reasons {
			v.Refuse(r)
		}
	}
}

// RefusedSteps returns why the ClusterServiceVersions and Subscriptions that an approved plan still has to write are
// refused at a time; none if they are allowed. OLM repeats a refused step for as long as the plan exists.
func RefusedSteps(plan *olm.InstallPlan, ns *state.Namespace, now time.Time) []verdict.Reason {
	if !plan.Running() || !ns.Judged() {
		return nil
	}
	return append(bundle.RefusedSteps(plan, ns, now), refusedSubscriptions(plan, ns, now)...)
}

// refusedSubscriptions judges the Subscriptions that OLM generates for dependencies, as they are judged when it writes
// them.
func refusedSubscriptions(plan *olm.InstallPlan, ns *state.Namespace, now time.Time) (reasons []verdict.Reason) {
	for i := range plan.Status.Steps {
		sub := plan.Status.Steps[i].Resource.Subscription()
		if sub == nil || slices.ContainsFunc(ns.Subscriptions(),
			func(s *olm.Subscription) bool { return s.Metadata.Name == sub.Metadata.Name }) {
			continue
		}
		generated := *sub
		generated.Metadata.Namespace, generated.Metadata.Annotations.GeneratedBy = plan.Metadata.Namespace,
			plan.Metadata.Name
		v := JudgeSubscription(SubscriptionInput{Subscription: &generated, Namespace: ns, ByOLM: true,
			Mode: MutateApproval,
			Now:  now})
		for _, r := range v.Reasons {
			r.Message = "Subscription " + text.Name(sub.Metadata.Name) + " to package " + text.Name(sub.Spec.Package) +
				": " + r.Message
			reasons = append(reasons, r)
		}
	}
	return reasons
}
