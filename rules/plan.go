package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/evidence"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	RulePlanPhase          verdict.RuleID = "plan/phase"
	RulePlanCreate         verdict.RuleID = "plan/create"
	RulePlanBornApproved   verdict.RuleID = "plan/born-approved"
	RulePlanFrozen         verdict.RuleID = "plan/frozen"
	RulePlanStatusPhase    verdict.RuleID = "plan/status-phase"
	RulePlanOverride       verdict.RuleID = "plan/override"
	RulePlanOverrideReason verdict.RuleID = "plan/override-reason"
	RulePlanConsentRight   verdict.RuleID = "plan/consent-right"
)

// planRules are the rules on InstallPlans as such; package bundle has those on what they bring.
var planRules = []verdict.Rule{
	{ID: RulePlanPhase, Outcomes: verdict.Holds, Backstop: true,
		Summary: "the plan is approved before OLM has written its steps and asked for approval"},
	{ID: RulePlanCreate, Outcomes: verdict.Denies, Backstop: true,
		Summary: "an InstallPlan is created by another user than OLM in a governed namespace"},
	{ID: RulePlanBornApproved, Outcomes: verdict.Holds,
		Summary: "OLM creates a plan that is already approved although a policy must judge it first"},
	{ID: RulePlanFrozen, Outcomes: verdict.Denies, Backstop: true,
		Summary: "the contents of a stored plan are changed by another user than OLM"},
	{ID: RulePlanStatusPhase, Outcomes: verdict.Denies, Backstop: true,
		Summary: "the phase of a plan is written by another user than OLM"},
	{ID: RulePlanOverride, Outcomes: verdict.Warns, SetsAside: true,
		Summary: "a refused plan is approved by a user with the RBAC verb override, for the reason given"},
	{ID: RulePlanOverrideReason, Outcomes: verdict.Denies, Backstop: true,
		Summary: "annotation opgate.io/override-reason is set on a plan without an approval that needs an override, or opgate.io/override-expires is changed later"},
	{ID: RulePlanConsentRight, Outcomes: verdict.Denies,
		Summary: "annotation opgate.io/consent, consent-by or consent-expires is written by a user who may not consent, in another name, or in a form that is no consent"},
}

// PlanInput is the input of JudgePlan.
type PlanInput = bundle.Input

// JudgePlan decides whether a plan may be approved, by any user: every ClusterServiceVersion in it must be allowed by
// every enforcing policy of its package (one allowed operator must not carry another), and by every
// Constraint. Without any of them every plan is allowed; warnings name what cannot work.
func JudgePlan(in PlanInput) verdict.Verdict {
	return judgePlan(bundle.NewPlan(in))
}

func judgePlan(j *bundle.Plan) verdict.Verdict {
	v := verdict.Verdict{Object: "installplan " + j.Plan.Metadata.Key()}
	if !j.Namespace.Judged() {
		j.JudgeNeeds(&v)
		return v.Sorted()
	}
	if f := unfinished(j.Plan, len(j.Bundles)); !f.Silent() {
		state.RecordForNamespace(&v, j.Namespace, RulePlanPhase, f)
		return v // other missing parts are a consequence of this
	}
	v.CSVs = j.Judge(&v)
	return v.Sorted()
}

// unfinished holds plans that OLM has not finished writing: approving one conflicts with OLM's own write of the status
// and leaves duplicate plans.
func unfinished(plan *olm.InstallPlan, csvs int) verdict.Finding {
	what := ""
	switch {
	case plan.Oversized():
		return verdict.OnHold("a plan of this size cannot be judged and",
			fmt.Sprintf("at most %d names, steps and bundle lookups together are judged",
				olm.MaxPlanEntries)).At("status.plan")
	case plan.Status.Phase == "" || plan.Status.Phase == olm.PhasePlanning:
		what = "the plan is not ready"
	case csvs == 0:
		what = "the plan names no ClusterServiceVersion"
	default:
		return verdict.Finding{}
	}
	return verdict.OnHold(what+" and", "waits until OLM has written its steps and asks for approval (phase "+
		olm.PhaseRequiresApproval+")").At("status.phase")
}

// Inspected is the verdict on an object that is stored.
type Inspected struct {
	// Kind is olm.KindClusterServiceVersion, of an installed operator, or olm.KindInstallPlan, of a plan that waits for
	// approval.
	Kind, Name string
	Verdict    verdict.Verdict
}

// Inspect judges what is in a namespace at a time: each installed operator by JudgeInstalled, and each plan that waits
// for approval by JudgePlan, in this order and by name. It is what reports and `opgate check --live` show.
func Inspect(ns *state.Namespace, now time.Time) []Inspected {
	var all []Inspected
	for i := range ns.Installed() {
		if v, stored := bundle.JudgeInstalled(ns, ns.Installed()[i].Name, now); stored {
			all = append(all, Inspected{olm.KindClusterServiceVersion, ns.Installed()[i].Name, v})
		}
	}
	for _, plan := range ns.Plans() {
		if ns.Waits(plan) {
			all = append(all, Inspected{olm.KindInstallPlan, plan.Metadata.Name,
				JudgePlan(PlanInput{Plan: plan, Namespace: ns, Now: now})})
		}
	}
	return all
}

// NextChange returns when the time alone changes what holds plans here: an approval window opens, a freeze ends or a
// version is old enough for which a plan waits, or an override or a consent of a plan ends; zero if none of that will
// be.
func NextChange(n *state.Namespace, now time.Time) (next time.Time) {
	for _, plan := range n.Plans() {
		for _, e := range evidence.Of(plan) {
			if end, known := e.At(); known && now.Before(end) {
				next = earliest(next, end)
			}
		}
	}
	if !slices.ContainsFunc(n.Plans(), n.Waits) {
		return next
	}
	next = earliest(next, nextAge(n, now))
	for _, p := range n.Enforcing() {
		if p.MustNotHave || !p.Calendar.Restricts() || p.Unreadable() != "" {
			continue
		}
		if when := p.Calendar.At(now); !when.Open {
			next = earliest(next, when.Changes())
		}
	}
	return next
}

// earliest returns the earlier one of two times, of which a zero one is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// nextAge returns when the first version of a plan that waits is old enough; zero if none is too young.
func nextAge(n *state.Namespace, now time.Time) (next time.Time) {
	aged := func(p *operatorpolicy.Policy) bool { return p.Age.Holds() && !p.MustNotHave }
	if !slices.ContainsFunc(n.Enforcing(), aged) {
		return next
	}
	for _, plan := range n.Plans() {
		if !n.Waits(plan) {
			continue
		}
		bundles := carrier.OfPlan(plan, n)
		for i := range bundles {
			seen, unknown := bundles[i].FirstSeen(n)
			for _, p := range n.Governing(bundles[i].Package) {
				if ready := seen.Add(p.Age.Least); unknown == "" && p.Age.Holds() && now.Before(ready) {
					next = earliest(next, ready)
				}
			}
		}
	}
	return next
}

// UpgradeDeadline returns when a plan that waits has waited for longer than a policy wants for an upgrade in it, by
// spec.MaximumWait; zero for never, and if it is not known when the plan was created.
func UpgradeDeadline(n *state.Namespace, plan *olm.InstallPlan) (deadline time.Time) {
	created, err := time.Parse(time.RFC3339, plan.Metadata.CreationTimestamp)
	if err != nil || n == nil {
		return deadline
	}
	bundles := carrier.OfPlan(plan, n)
	for i := range bundles {
		if n.InstalledOf(bundles[i].Package, bundles[i].Name) == "" {
			continue // a first installation
		}
		for _, p := range n.Governing(bundles[i].Package) {
			if p.MaximumWait > 0 {
				deadline = earliest(deadline, created.Add(p.MaximumWait))
			}
		}
	}
	return deadline
}
