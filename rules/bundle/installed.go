package bundle

import (
	"slices"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// JudgeInstalled decides whether an installed operator is one that the present policies and Constraints allow at a
// time, however it was approved. How it got there is not judged: upgradeApproval and consent are about changes.
// Here is false for a ClusterServiceVersion that is not stored, or that installs nothing here.
func JudgeInstalled(ns *state.Namespace, csv string, now time.Time) (v verdict.Verdict, here bool) {
	i := slices.IndexFunc(ns.Installed(), func(c state.Installed) bool { return c.CSV == csv && c.Spec != nil })
	if i < 0 {
		return verdict.Verdict{}, false
	}
	installed := &ns.Installed()[i]
	c := carrier.OfInstalled(ns, installed)
	v = verdict.Verdict{Object: "clusterserviceversion " + ns.Name() + "/" + csv}
	if !ns.Judged() {
		return v, true
	}
	result := verdict.CSV{CSV: csv, Package: c.Package, Version: c.Version, Release: c.Release}
	JudgeUnknown(c, ns, &v)
	for _, p := range ns.Governing(c.Package) {
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
