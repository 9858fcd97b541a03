package rules

import (
	"slices"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
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
		if v, here := JudgeInstalled(ns, ns.Installed()[i].CSV, now); here {
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

// JudgeInstalled decides whether an installed operator is one that the present policies and Constraints allow at a
// time, however it was approved. It says nothing of how it got there: upgradeApproval and consent are about changes.
// Here is false for a ClusterServiceVersion that is not stored, or that installs nothing here.
func JudgeInstalled(ns *state.Namespace, csv string, now time.Time) (v verdict.Verdict, here bool) {
	i := slices.IndexFunc(ns.Installed(), func(c state.Installed) bool { return c.CSV == csv && c.Spec != nil })
	if i < 0 {
		return verdict.Verdict{}, false
	}
	installed := &ns.Installed()[i]
	c := asPlanned(ns, installed)
	v = verdict.Verdict{Object: "clusterserviceversion " + ns.Name() + "/" + csv}
	if !ns.Judged() {
		return v, true
	}
	result := verdict.CSV{CSV: csv, Package: c.pkg, Version: c.version, Release: c.release}
	c.recordUnknown(ns, "it", installFrom, &v)
	for _, p := range ns.Governing(c.pkg) {
		for _, rule := range contentChecks {
			recordOn(p, c, now, &v, rule.ID, rule.judge(c, p))
		}
		if p.Enforced && !p.MustNotHave {
			result.By = append(result.By, p.Source())
		}
	}
	for _, f := range ns.Constraints().Judge(installed.ForConstraints(ns), ns.ForConstraints(),
		constraint.NewBudget(nil)) {
		if ofUnfinishedPlans(&f) {
			continue
		}
		recordConstraintOn(ns, c, now, &v, text.Name(csv), &f)
	}
	switch {
	case v.Decision == verdict.Deny:
		result.Disposition = verdict.Denied
	case v.Decision == verdict.Hold:
		result.Disposition = verdict.Held
	case len(result.By) > 0:
		result.Disposition = verdict.Allowed
	}
	if result.Disposition != verdict.Allowed {
		result.By = nil
	}
	v.CSVs = []verdict.CSV{result}
	return v.Sorted(), true
}
