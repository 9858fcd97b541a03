package bundle

import (
	"slices"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/evidence"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// isListed reports whether a ClusterServiceVersion is in spec.versions; known is false if that depends on its contents
// and the plan does not show them. An empty list lists everything.
func isListed(c *carrier.Bundle, l *operatorpolicy.VersionList) (match, known bool) {
	if !l.Binds(c.Name) {
		return len(l.Entries) == 0 || l.Lists(c.Name), true
	}
	digest, unknown := c.Digest()
	return l.BindsTo(c.Name, digest), unknown == ""
}

func unlistedCSV(c *carrier.Bundle, p *operatorpolicy.Policy) verdict.Finding {
	what := text.Name(c.Name)
	if p.Versions.Binds(c.Name) {
		digest, unknown := c.Digest()
		switch {
		case p.Versions.BindsTo(c.Name, digest):
			return verdict.Finding{}
		case unknown == "":
			what += "@" + digest
		default:
			what += ", " + unknown + ","
		}
	} else if p.MayBring(c.Name) {
		return verdict.Finding{}
	}
	return verdict.NotAllowed(what, p.AcceptedVersions())
}

func outOfRangeCSV(c *carrier.Bundle, p *operatorpolicy.Policy) verdict.Finding {
	if p.MustNotHave || p.VersionRange == nil || p.NamesStart(c.Name) {
		return verdict.Finding{}
	}
	allowed := "allowed is versionRange " + text.Quote(p.VersionRange.String())
	if c.Version == "" {
		return verdict.OnHold("the version of "+text.Name(c.Name)+" is not known and the plan", allowed)
	}
	in, err := p.VersionRange.Contains(c.Version)
	switch {
	case err != nil:
		return verdict.OnHold(text.Name(c.Name)+", whose "+err.Error()+",", allowed)
	case !in:
		return verdict.NotAllowed(text.Name(c.Name)+" (version "+olm.VersionText(text.Name(c.Version), c.Release)+")",
			allowed+suffixed(c, p))
	}
	return verdict.Finding{}
}

// suffixed returns the range that was probably meant where the suffix of a version decides over it, else nothing.
func suffixed(c *carrier.Bundle, p *operatorpolicy.Policy) string {
	if p.VersionRange != nil {
		if wider := p.VersionRange.WithSuffixes(c.Version); wider != "" {
			return ", which has " + text.Name(c.Version) + " before the version without its suffix: write " +
				text.Quote(wider) + " if suffixes are to count as the version"
		}
	}
	return ""
}

// Covers reports whether a musthave policy wants a ClusterServiceVersion of its package to be installed; if not,
// accepted is what it wants instead. What is installed does not show its digest, so the name decides. Exceptions count
// at the time now.
func Covers(p *operatorpolicy.Policy, csv, version string, now time.Time) (ok bool, accepted string) {
	c := &carrier.Bundle{Bundle: olm.Bundle{Name: csv, Version: version}}
	listed := p.MustNotHave || p.Unreadable() != "" || p.MayBring(csv) || p.ExceptedName(csv, RuleVersion, now)
	if listed && (outOfRangeCSV(c, p).Silent() || p.ExceptedName(csv, RuleVersionRange, now)) {
		return true, ""
	}
	return false, p.Acceptance()
}

func forbiddenCSV(c *carrier.Bundle, p *operatorpolicy.Policy) verdict.Finding {
	switch match, known := matches(p, c); {
	case match:
		return verdict.Finding{Decision: verdict.Deny, What: text.Name(c.Name) + " is forbidden",
			Accepted: "the policy is mustnothave for " + p.ForbiddenText() + suffixed(c, p)}
	case !known:
		missing := "its version or catalog is not known"
		if _, shown := isListed(c, &p.Versions); !shown {
			missing = "the digest of its bundle image is not known"
		}
		return verdict.OnHold(text.Name(c.Name), missing+", and the policy is mustnothave for "+p.ForbiddenText())
	}
	return verdict.Finding{}
}

// matches reports whether a mustnothave policy matches this CSV; known is false if it might.
func matches(p *operatorpolicy.Policy, c *carrier.Bundle) (match, known bool) {
	listed, shown := isListed(c, &p.Versions)
	if !listed && shown {
		return false, true
	}
	if p.VersionRange != nil {
		in, err := p.VersionRange.Contains(c.Version)
		if err != nil {
			return false, false
		}
		if !in {
			return false, true
		}
	}
	switch {
	case p.Catalog == (olm.Catalog{}):
	case len(c.Catalogs) == 0:
		return false, false // what bypasses OLM may be that of any catalog
	case !slices.ContainsFunc(c.Catalogs, p.AllowsCatalog):
		return false, true
	}
	return listed, shown
}

// Forbids reports whether a mustnothave policy matches a ClusterServiceVersion of its package; known is false if that
// depends on a version or catalog that is not known (zero), or on the digest of its bundle image. Exceptions count at
// the time now.
func Forbids(p *operatorpolicy.Policy, csv, version string, catalog olm.Catalog, now time.Time) (match, known bool) {
	if p.ExceptedName(csv, RuleMustNotHave, now) {
		return false, true
	}
	c := &carrier.Bundle{Bundle: olm.Bundle{Name: csv, Version: version}}
	c.From(catalog)
	return matches(p, c)
}

// recordUnknown holds a bundle whose package is not known, where policies govern any; held is what is held.
func recordUnknown(c *carrier.Bundle, ns *state.Namespace, held, accepted string, v *verdict.Verdict) bool {
	if c.Unknown == "" || !ns.Governed() {
		return false
	}
	of := "package"
	if c.Ambiguous {
		of = "release"
	}
	state.RecordForNamespace(v, ns, RuleUnknown, verdict.OnHold("the "+of+" of "+text.Name(c.Name)+
		" is not known ("+c.Unknown+") and "+held, accepted))
	return true
}

// awaited returns what would make a bundle of a plan known.
func awaited(c *carrier.Bundle) string {
	if c.Ambiguous {
		return "allowed is a bundle whose property olm.package and spec.release name the same release"
	}
	return "waits until the bundle's properties or the status of a Subscription name the package"
}

// installFrom is what is accepted in place of what bypasses OLM.
const installFrom = "let OLM install it, from a Subscription"

// JudgeUnknown holds a ClusterServiceVersion whose package is not known and that no plan brings.
func JudgeUnknown(c *carrier.Bundle, ns *state.Namespace, v *verdict.Verdict) {
	recordUnknown(c, ns, "it", installFrom, v)
}

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
