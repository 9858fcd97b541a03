package rules

import (
	"fmt"
	"time"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RulePlanPhase is on a plan as a whole.
const RulePlanPhase verdict.RuleID = "plan/phase"

var planPhase = verdict.Rule{ID: RulePlanPhase, Outcomes: verdict.Holds, Backstop: true,
	Summary: "the plan is approved before OLM has written its steps and asked for approval"}

// PlanInput is the input of JudgePlan.
type PlanInput struct {
	// Plan is the plan with its stored status.
	Plan *olm.InstallPlan
	// Namespace is the plan's namespace; nil if it has no known objects.
	Namespace *state.Namespace
	// Now is the time for approval windows and exceptions. Default: it is not known, what a policy has windows for is
	// held, and exceptions do not count.
	Now time.Time
	// Interrupt stops the evaluation of Constraints when it is closed; what was not judged is held. Nil never
	// interrupts.
	Interrupt <-chan struct{}
}

// JudgePlan decides whether a plan may be approved, by any user: every ClusterServiceVersion in it must be allowed by
// every enforcing policy of its package (threat O7: one allowed operator must not carry another), and by every
// Constraint. Without any of them every plan is allowed; warnings name what cannot work.
func JudgePlan(in PlanInput) verdict.Verdict {
	return newPlanJudge(in).judge()
}

func (j *planJudge) judge() verdict.Verdict {
	v := verdict.Verdict{Object: "installplan " + j.Plan.Metadata.Key()}
	if !j.Namespace.Judged() {
		for i := range j.csvs {
			j.judgeNeeds(&j.csvs[i], &v)
		}
		return v.Sorted()
	}
	if f := unfinished(j.Plan, len(j.csvs)); !f.Silent() {
		state.RecordForNamespace(&v, j.Namespace, RulePlanPhase, f)
		return v // other missing parts are a consequence of this
	}
	v.CSVs = make([]verdict.CSV, len(j.csvs))
	for i := range j.csvs {
		v.CSVs[i] = j.judgeCSV(&j.csvs[i], &v)
	}
	markRequired(j.csvs, v.CSVs)
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

// judgeCSV judges one ClusterServiceVersion: by the policies of its package, by the Constraints, and by the
// dependencies of its bundle.
func (j *planJudge) judgeCSV(c *Bundle, v *verdict.Verdict) verdict.CSV {
	judged := verdict.CSV{CSV: c.name, Package: c.pkg, Version: c.version, Release: c.release}
	before := len(v.Reasons)
	judged.Disposition, judged.By = judgeByPolicies(&j.PlanInput, c, v)
	j.judgeConstraints(c, v)
	j.judgeNeeds(c, v)
	for _, r := range v.Reasons[before:] {
		judged.Because = append(judged.Because, r.Message)
		switch r.Decision {
		case verdict.Deny:
			judged.Disposition = verdict.Denied
		case verdict.Hold:
			judged.Disposition = max(judged.Disposition, verdict.Held)
		case verdict.Allow: // no reason is one
		}
	}
	if judged.Disposition != verdict.Allowed {
		judged.By = nil
	}
	return judged
}

// judgeByPolicies returns the disposition of a ClusterServiceVersion if no policy refuses it, and the policies that
// allow it.
func judgeByPolicies(in *PlanInput, c *Bundle, v *verdict.Verdict) (disposition verdict.Disposition, by []string) {
	if c.recordUnknown(in.Namespace, "the plan", c.awaited(), v) {
		return verdict.Held, nil
	}
	for _, p := range in.Namespace.Governing(c.pkg) {
		for _, rule := range contentChecks {
			recordOn(p, c, in.Now, v, rule.ID, rule.judge(c, p))
		}
		for _, rule := range progressChecks {
			recordOn(p, c, in.Now, v, rule.ID, rule.judge(in, c, p))
		}
		judgeConsent(in, c, p, v)
		if p.Enforced && !p.MustNotHave {
			disposition, by = verdict.Allowed, append(by, p.Source())
		}
	}
	return disposition, by
}

// markRequired marks what the allowed CSVs require.
func markRequired(csvs []Bundle, verdicts []verdict.CSV) {
	var allowed []int
	for i := range verdicts {
		if verdicts[i].Disposition == verdict.Allowed {
			allowed = append(allowed, i)
		}
	}
	alongRequired(csvs, allowed, func(i, from int) bool {
		if verdicts[i].Disposition != verdict.Ungoverned {
			return false
		}
		verdicts[i].Disposition = verdict.Required
		verdicts[i].By = []string{csvs[from].name}
		return true
	})
}

// alongRequired traverses from some CSVs to those that they require, and on from each for which enter returns true.
// That must be at most once per CSV, so that cyclic requirements end the traversal instead of the process.
func alongRequired(csvs []Bundle, queue []int, enter func(i, from int) bool) {
	var offered map[olm.Capability][]int // most plans have one operator, which requires none
	for ; len(queue) > 0; queue = queue[1:] {
		from := queue[0]
		if len(csvs[from].requires) == 0 {
			continue
		}
		if offered == nil {
			offered = offersOf(csvs)
		}
		asked := map[olm.Capability]bool{}
		for _, required := range csvs[from].requires {
			if asked[required] {
				continue
			}
			asked[required] = true
			for _, i := range offered[required] {
				if enter(i, from) {
					queue = append(queue, i)
				}
			}
		}
	}
}

// offersOf indexes CSVs by what they provide, each capability once per CSV: bundles may repeat theirs thousands of
// times.
func offersOf(csvs []Bundle) map[olm.Capability][]int {
	offered := map[olm.Capability][]int{}
	for i := range csvs {
		for _, c := range append(csvs[i].provides[:len(csvs[i].provides):len(csvs[i].provides)],
			olm.Capability{Package: csvs[i].pkg}) {
			if by := offered[c]; len(by) == 0 || by[len(by)-1] != i {
				offered[c] = append(by, i)
			}
		}
	}
	delete(offered, olm.Capability{}) // an empty capability provides nothing
	return offered
}
