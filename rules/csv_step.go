package rules

import (
	"slices"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/evidence"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// steps returns the plans that the write may be a step of. A name proves nothing: before a policy governs the
// namespace, a user who may create plans may choose any name (threat O9). OLM writes for the plans that it runs. A
// ServiceAccount writes for plans that name it, and since that account belongs to a tenant, only the contents of the
// plan.
func (in *CSVInput) steps() []Bundle {
	if in.Old != nil {
		return nil
	}
	var running, late []Bundle
	for _, plan := range in.Namespace.Plans() {
		if !in.ByOLM && !plan.RunsAs(in.User) {
			continue
		}
		step, ok := in.stepOf(plan)
		if !ok {
			continue
		}
		if plan.Running() && plan.Brings(step.name) {
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
func exactOrAll(steps []Bundle) []Bundle {
	if exact := slices.DeleteFunc(slices.Clone(steps), func(s Bundle) bool { return !s.exact }); len(exact) > 0 {
		return exact
	}
	return steps
}

// judgeSteps judges the steps of running plans. Of several plans with exactly these contents, one allowed plan is
// enough; if it is not known which plan the write is for, all of them must be allowed.
func (in *CSVInput) judgeSteps(steps []Bundle, budget *constraint.Budget, v *verdict.Verdict) {
	verdicts := make([]verdict.Verdict, len(steps))
	for i := range steps {
		judgeStep(&steps[i], in.Namespace, in.Now, budget, &verdicts[i])
	}
	judged := verdicts
	if steps[0].exact {
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

// judgeStep judges a step of an approved plan by the present policies and Constraints: the plan may have been approved
// before these, or from the start. How the plan leads to it, such as by an upgrade, was judged at approval. An override
// sets aside what the plan showed to its approver: of a bundle image only the contents that were read, if OLM writes
// these.
func judgeStep(c *Bundle, ns *state.Namespace, now time.Time, budget *constraint.Budget, v *verdict.Verdict) {
	ended, what := evidence.OverrideEnd(c.plan, now), "this ClusterServiceVersion"
	if c.stored && ended != "" { // what was written before the end of its override stays
		ended = evidence.OverrideExpiry(&c.plan.Metadata).Unmarked().EndedText(c.storedAt)
	}
	overridden := evidence.Overridden(c.plan) && ended == ""
	if ended != "" {
		what += ", of which the override " + ended + ","
	}
	if overridden && !c.shown(ns) {
		c.referring = false // the approver did not see what comes along either
	}
	judgeStepContents(c, ns, v)
	if !overridden {
		judgeStepByPolicies(c, ns, now, ended, v)
	}
	for _, f := range ns.Constraints().Judge(c.forConstraints(ns), ns.ForConstraints(), budget) {
		if c.stored && ofUnfinishedPlans(&f) {
			continue
		}
		visible := c.inline || f.Constraint == nil || f.Constraint.Uses()&constraint.InCSV == 0 || c.shown(ns)
		c.explain(&f, ns)
		if !overridden || !visible {
			recordConstraintOn(ns, c, now, v, what, &f)
		}
	}
}

// shown reports whether what OLM writes, if that is known, is what it had unpacked for the plan, by which the approval
// was judged.
func (c *Bundle) shown(ns *state.Namespace) bool {
	unpacked, unknown := unpackedOf(ns, c)
	return unknown == "" && (c.spec == nil || unpacked.Spec.ContentsDigest() == c.spec.ContentsDigest())
}

// judgeStepByPolicies judges a step without an override; ended is why that of its plan does not count, "" if it has
// none.
func judgeStepByPolicies(c *Bundle, ns *state.Namespace, now time.Time, ended string, v *verdict.Verdict) {
	by := "; InstallPlan " + text.Name(c.plan.Metadata.Name) + ", which brings it, was approved all the same"
	if ended != "" {
		by += ", with an override that " + ended
	}
	c.recordUnknown(ns, "it", c.awaited()+by, v)
	for _, p := range ns.Governing(c.pkg) {
		for _, rule := range contentChecks {
			f := rule.judge(c, p)
			f.Accepted += by
			recordOn(p, c, now, v, rule.ID, f)
		}
		if c.stored {
			continue // contents are read, and compared with what is installed, for unfinished plans only
		}
		for _, r := range reviewChange(ns, c.plan, c, now, p, v) {
			r.Accepted += by
			recordReview(c, now, v, p, r)
		}
	}
}

// RefusedSteps returns why the ClusterServiceVersions and Subscriptions that an approved plan still has to write are
// refused at a time; none if they are allowed. OLM repeats a refused step for as long as the plan exists.
func RefusedSteps(plan *olm.InstallPlan, ns *state.Namespace, now time.Time) []verdict.Reason {
	if !plan.Running() || !ns.Judged() {
		return nil
	}
	return append(refusedSteps(plan, ns, now), refusedSubscriptions(plan, ns, now)...)
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

func refusedSteps(plan *olm.InstallPlan, ns *state.Namespace, now time.Time) []verdict.Reason {
	v := verdict.Verdict{}
	budget := constraint.NewBudget(nil)
	for _, step := range bundlesOf(plan, ns) {
		switch {
		case ns.Installs(step.name):
		case step.inline || step.shown(ns):
			judgeStep(&step, ns, now, budget, &v)
		case !evidence.Overridden(plan) || evidence.OverrideEnd(plan, now) != "":
			// the contents of an image that is not unpacked are not known before OLM writes it
			judgeStepByPolicies(&step, ns, now, evidence.OverrideEnd(plan, now), &v)
		}
	}
	v = v.Sorted()
	return v.Reasons
}
