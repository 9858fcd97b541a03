package rules

import (
	"fmt"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RulePlanPhase is on a plan as a whole.
const RulePlanPhase verdict.RuleID = "plan/phase"

var planPhase = verdict.Rule{ID: RulePlanPhase, Outcomes: verdict.Holds, Backstop: true,
	Summary: "the plan is approved before OLM has written its steps and asked for approval"}

// PlanInput is the input of JudgePlan.
type PlanInput = bundle.Input

// JudgePlan decides whether a plan may be approved, by any user: every ClusterServiceVersion in it must be allowed by
// every enforcing policy of its package (threat O7: one allowed operator must not carry another), and by every
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
// and leaves duplicate plans (threat O5).
func unfinished(plan *olm.InstallPlan, csvs int) verdict.Finding {
	what := ""
	switch {
	case plan.Oversized():
		return verdict.Finding{Decision: verdict.Hold, Field: "status.plan",
			What:     "a plan of this size cannot be judged and is held",
			Accepted: fmt.Sprintf("at most %d names, steps and bundle lookups together are judged", olm.MaxPlanEntries)}
	case plan.Status.Phase == "" || plan.Status.Phase == olm.PhasePlanning:
		what = "the plan is not ready"
	case csvs == 0:
		what = "the plan names no ClusterServiceVersion"
	default:
		return verdict.Finding{}
	}
	return verdict.Finding{Decision: verdict.Hold, Field: "status.phase", What: what + " and is held",
		Accepted: "waits until OLM has written its steps and asks for approval (phase " + olm.PhaseRequiresApproval +
			")"}
}
