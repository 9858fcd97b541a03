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
// namespace, a user who may create plans may choose any name. OLM writes for the plans that it runs. A ServiceAccount
// writes for plans that name it, and since that account belongs to a tenant, only the contents of the plan.
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
	if !plan.Running() || !ns.Judged() && !ns.Protected() {
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
		v := JudgeSubscription(SubscriptionInput{New: &generated, Namespace: ns, ByOLM: true,
			Mode: MutateApproval, Now: now})
		for _, r := range v.Reasons {
			r.Message = "Subscription " + text.Name(sub.Metadata.Name) + " to package " + text.Name(sub.Spec.Package) +
				": " + r.Message
			reasons = append(reasons, r)
		}
	}
	return reasons
}

// Escape is why admission would have refused a ClusterServiceVersion that was stored without a review: the reason of
// one policy or Constraint.
type Escape struct {
	verdict.PolicyRef
	// Generation is that of the source; 0 if its verdict depends on more than its spec (template text, or a Policy that
	// suspends it), or if admission would only have held it until something else happens.
	Generation int64 `json:"generation,omitempty"`
	// Message is that of the Reason, of at most maxEscapeText bytes.
	Message string `json:"message"`
}

const maxEscapeText = 512

// JudgeEscape judges a stored ClusterServiceVersion as admission judges the step of a plan by which OLM writes it, in
// any phase of that plan. Outcomes: known is false if no approved plan contains it: a user, or OLM, has deleted the
// plan, and with it a possible override, so that reasons has what is denied whatever the plan was; it is
// also false, without reasons, for copies, virtual operators and objects that are being deleted. Otherwise reasons is
// empty if admission would have allowed it, with or without a warning.
func JudgeEscape(csv *olm.CSV, ns *state.Namespace) (reasons []Escape, known bool) {
	if csv.Metadata.Labels.CopiedFrom != "" || csv.IsVirtual() || csv.Metadata.DeletionTimestamp != "" {
		return nil, false
	}
	in := CSVInput{New: csv, Namespace: ns}
	created, err := time.Parse(time.RFC3339, csv.Metadata.CreationTimestamp)
	var steps []carrier.Bundle
	for _, plan := range ns.Plans() {
		if !plan.Spec.Approved || !plan.Brings(csv.Metadata.Name) {
			continue
		}
		in.ByOLM = plan.Status.ServiceAccount.Name == ""
		if step, ok := carrier.OfStep(in.New, plan, in.Namespace, in.ByOLM); ok {
			// what comes along is read for unfinished plans only
			step.Stored, step.StoredAt, step.Referring = true, created, false
			steps = append(steps, step)
		}
	}
	var c *carrier.Bundle
	v, budget, gone := verdict.Verdict{}, constraint.NewBudget(nil), ""
	if len(steps) > 0 {
		c = &steps[0]
		in.judgeSteps(exactOrAll(steps), budget, &v)
	} else {
		gone = "; the InstallPlan that installed it was deleted"
		in.ByOLM = true
		c = in.bundle(csv)
		c.BypassesOLM = false // its catalog is not known
		judgeBypassingOLM(&in, c, nil, &v)
		for _, f := range ns.Constraints().Judge(c.ForConstraints(ns), ns.ForConstraints(), budget) {
			state.RecordConstraint(&v, bundle.RuleConstraint, "this ClusterServiceVersion", &f)
		}
	}
	v = v.Sorted()
	for _, r := range v.Reasons {
		if err == nil && wasExcepted(ns, r.From, r.Rule, c, created) {
			continue // as admission would have judged it then
		}
		if gone != "" && r.Decision != verdict.Deny {
			continue // the plan might have shown what it waits for, such as its catalog
		}
		e := Escape{PolicyRef: r.From, Message: text.Truncate(r.Message+gone, maxEscapeText)}
		if r.Decision == verdict.Deny {
			e.Generation = ns.GenerationOf(r.From)
		}
		reasons = append(reasons, e)
	}
	return reasons, len(steps) > 0
}

// wasExcepted reports whether an exception set a rule of a source aside for a bundle at a time of the past, whether or
// not it has ended since.
func wasExcepted(n *state.Namespace, from verdict.PolicyRef, id verdict.RuleID, c *carrier.Bundle, then time.Time) bool {
	for _, p := range n.Policies() {
		if p.Ref() == from {
			return p.Exceptions().Was(id, c.Name, n.Name(), then)
		}
	}
	for _, d := range n.Constraints().Definitions() {
		if state.ConstraintRef(d) == from {
			return n.ExceptionsOf(d, c.Package, c.Catalogs...).Was(id, c.Name, n.Name(), then)
		}
	}
	return false
}
