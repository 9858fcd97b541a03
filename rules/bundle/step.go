package bundle

import (
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/evidence"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// JudgeContents judges a ClusterServiceVersion that no plan brings by the policies of its package. An update, of what
// was there before, is refused for what it changes. Exceptions are about what plans bring, so that none counts.
func JudgeContents(ns *state.Namespace, c, before *carrier.Bundle, v *verdict.Verdict) {
	for _, p := range ns.Governing(c.Package) {
		if before == nil {
			judgeUnreviewed(c, p, v)
		}
		for i := range all {
			f := all[i].contents.Judge(c, p)
			if before == nil || before.Package != c.Package || f != all[i].contents.Judge(before, p) {
				p.Record(v, all[i].ID, f)
			}
		}
	}
	judgeReplaces(ns, c, before, time.Time{}, v)
}

// JudgeStep judges a step of an approved plan by the present policies and Constraints: the plan may have been approved
// before these, or from the start. How the plan leads to it, such as by an upgrade, was judged at approval. An override
// sets aside what the plan showed to its approver: of a bundle image only the contents that were read, if OLM writes
// these.
func JudgeStep(c *carrier.Bundle, ns *state.Namespace, now time.Time, budget *constraint.Budget, v *verdict.Verdict) {
	ended, what := evidence.OverrideEnd(c.Plan, now), "this ClusterServiceVersion"
	if c.Stored && ended != "" { // what was written before the end of its override stays
		ended = evidence.OverrideExpiry(&c.Plan.Metadata).Unmarked().EndedText(c.StoredAt)
	}
	overridden := evidence.Overridden(c.Plan) && ended == ""
	if ended != "" {
		what += ", of which the override " + ended + ","
	}
	if overridden && !c.AsUnpacked(ns) {
		c.Referring = false // the approver did not see what comes along either
	}
	judgeStepContents(c, ns, v)
	if !overridden {
		judgeStepByPolicies(c, ns, now, ended, v)
	}
	for _, f := range ns.Constraints().Judge(c.ForConstraints(ns), ns.ForConstraints(), budget) {
		if c.Stored && ofUnfinishedPlans(&f) {
			continue
		}
		visible := c.Inline || f.Constraint == nil || f.Constraint.Uses()&constraint.InCSV == 0 || c.AsUnpacked(ns)
		c.Explain(&f, ns)
		if !overridden || !visible {
			recordConstraintOn(ns, c, now, v, what, &f)
		}
	}
}

// judgeStepByPolicies judges a step without an override; ended is why that of its plan does not count, "" if it has
// none.
func judgeStepByPolicies(c *carrier.Bundle, ns *state.Namespace, now time.Time, ended string, v *verdict.Verdict) {
	by := "; InstallPlan " + text.Name(c.Plan.Metadata.Name) + ", which installs it, was approved all the same"
	if ended != "" {
		by += ", with an override that " + ended
	}
	recordUnknown(c, ns, "it", awaited(c)+by, v)
	judgeContents(ns, c, now, by, v)
	if !c.Stored { // changes are read, and compared with what is installed, for unfinished plans only
		judgeReplaces(ns, c, nil, now, v)
		judgeChange(ns, c.Plan, c, now, by, v)
	}
}

// RefusedSteps returns why the ClusterServiceVersions that a running plan still has to write are refused at a time, as
// far as their contents are known.
func RefusedSteps(plan *olm.InstallPlan, ns *state.Namespace, now time.Time) []verdict.Reason {
	v := verdict.Verdict{}
	budget := constraint.NewBudget(nil)
	for _, step := range carrier.OfPlan(plan, ns) {
		switch {
		case ns.Installs(step.Name):
		case step.Inline || step.AsUnpacked(ns):
			JudgeStep(&step, ns, now, budget, &v)
		case !evidence.Overridden(plan) || evidence.OverrideEnd(plan, now) != "":
			// the contents of an image that is not unpacked are not known before OLM writes it
			judgeStepByPolicies(&step, ns, now, evidence.OverrideEnd(plan, now), &v)
		}
	}
	v = v.Sorted()
	return v.Reasons
}

// JudgeInstalled decides whether an installed operator is one that the present policies and Constraints allow at a
// time, however it was approved. How it got there is not judged: upgradeApproval and consent are about changes.
// Stored is false for a ClusterServiceVersion that is not stored, or that installs nothing in the namespace.
func JudgeInstalled(ns *state.Namespace, csv string, now time.Time) (v verdict.Verdict, stored bool) {
	installed := ns.Stored(csv)
	if installed == nil {
		return verdict.Verdict{}, false
	}
	c := carrier.OfInstalled(ns, installed)
	v = verdict.Verdict{Object: "clusterserviceversion " + ns.Name() + "/" + csv}
	if !ns.Judged() {
		return v, true
	}
	result := verdict.CSV{CSV: csv, Package: c.Package, Version: c.Version, Release: c.Release}
	JudgeUnknown(c, ns, &v)
	result.Disposition, result.By = judgeContents(ns, c, now, "", &v)
	for _, f := range ns.Constraints().Judge(installed.ForConstraints(ns), ns.ForConstraints(),
		constraint.NewBudget(nil)) {
		if ofUnfinishedPlans(&f) {
			continue
		}
		recordConstraintOn(ns, c, now, &v, text.Name(csv), &f)
	}
	conclude(&result, v.Reasons)
	v.CSVs = []verdict.CSV{result}
	return v.Sorted(), true
}
