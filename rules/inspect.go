package rules

import (
	"time"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// Inspected is the verdict on an object that is stored.
type Inspected struct {
	// Kind is olm.KindClusterServiceVersion, of an installed operator, or olm.KindInstallPlan, of a plan that waits for
	// approval.
	Kind, Name string
	Verdict    verdict.Verdict
}

// Inspect judges what is in a namespace at a time: each installed operator by JudgeInstalled, and each plan that waits
// for approval by JudgePlan, in this order and by name. It is what reports and `opgate check --cluster` show.
func Inspect(ns *state.Namespace, now time.Time) []Inspected {
	var all []Inspected
	for i := range ns.Installed() {
		if v, here := bundle.JudgeInstalled(ns, ns.Installed()[i].CSV, now); here {
			all = append(all, Inspected{olm.KindClusterServiceVersion, ns.Installed()[i].CSV, v})
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
