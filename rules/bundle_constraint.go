package rules

import (
	"cmp"
	"slices"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleBundleConstraint is on Constraints of the cluster.
const RuleBundleConstraint verdict.RuleID = "bundle/constraint"

var bundleConstraint = verdict.Rule{ID: RuleBundleConstraint, Outcomes: verdict.AnyOutcome, Override: true,
	Summary: "a ClusterServiceVersion does not satisfy a Constraint, or whether it does is not known"}

// maxDeprecation bounds a catalog's message, in bytes.
const maxDeprecation = 256

// planJudge holds what is computed once for all ClusterServiceVersions of a plan.
type planJudge struct {
	PlanInput
	csvs   []Bundle
	budget *constraint.Budget
	// strict is set if something may refuse in this namespace; elsewhere problems are only warned of.
	strict bool
	// others are all that may satisfy the constraints that a bundle brings along; nil until first use.
	others []*constraint.Bundle
}

func newPlanJudge(in PlanInput) *planJudge {
	j := &planJudge{PlanInput: in, csvs: bundlesOf(in.Plan, in.Namespace), budget: constraint.NewBudget(in.Interrupt),
		strict: in.Namespace.MayRefuse()}
	for i := range j.csvs {
		j.csvs[i].compareUnpacked(in.Namespace)
	}
	return j
}

// compareUnpacked compares the release of a ClusterServiceVersion that a plan refers to with the one that OLM unpacked,
// if that is known. Else it is compared when OLM writes the object.
func (c *Bundle) compareUnpacked(ns *state.Namespace) {
	if c.spec != nil {
		return
	}
	if unpacked, unknown := unpackedOf(ns, c); unknown == "" {
		c.compareRelease(unpacked.Spec)
	}
}

// candidates returns the bundles of the plan, and the installed ones that the plan does not replace.
func (j *planJudge) candidates() []*constraint.Bundle {
	if j.others != nil {
		return j.others
	}
	for i := range j.csvs {
		j.others = append(j.others, j.csvs[i].forConstraints(j.Namespace))
	}
	for _, installed := range j.Namespace.Installed() {
		replaced := func(c Bundle) bool { return c.pkg != "" && c.pkg == installed.Package || c.name == installed.CSV }
		if !slices.ContainsFunc(j.csvs, replaced) {
			j.others = append(j.others, installed.ForConstraints(j.Namespace))
		}
	}
	return j.others
}

// bundle returns a ClusterServiceVersion of a plan as Constraints see it.
func (c *Bundle) forConstraints(ns *state.Namespace) *constraint.Bundle {
	b := &constraint.Bundle{CSV: c.name, Package: c.pkg, Version: c.version, Release: c.stated,
		Properties: c.properties}
	if c.pkg == "" {
		b.Unknown |= constraint.Package | constraint.Channel
	}
	if c.version == "" {
		b.Unknown |= constraint.Version
	}
	if c.unknown != "" || !c.described || c.disputed {
		b.Unknown |= constraint.Properties | constraint.Release
		b.Properties, b.Release = nil, ""
	}
	c.requests(b, ns)
	if len(c.catalogs) == 1 {
		b.Catalog = c.catalogs[0]
	} else {
		b.Unknown |= constraint.CatalogSource
	}
	deprecated, known := c.deprecations(ns)
	if !known {
		b.Unknown |= constraint.Deprecation
	}
	for _, message := range []*string{&deprecated.Package, &deprecated.Channel, &deprecated.Version} {
		*message = text.Truncate(*message, maxDeprecation) // a long text makes every rule more expensive
	}
	b.Deprecated = deprecated
	c.changes(b, ns)
	state.SetConfig(b, ns)
	// A dependency of another operator follows no channel until it has a Subscription.
	for _, s := range ns.Subscribers(c.pkg) {
		if s.Spec.Channel == "" || b.Channel != "" && b.Channel != s.Spec.Channel {
			b.Unknown |= constraint.Channel // the catalog's default, which the plan does not contain
		}
		b.Channel = s.Spec.Channel
	}
	return b
}

// requests sets what the contents of a ClusterServiceVersion of a plan request: those that the plan contains, and those
// that OLM unpacked.
func (c *Bundle) requests(b *constraint.Bundle, ns *state.Namespace) {
	spec, grants := c.spec, c.grants
	if c.byReference() {
		unpacked, unknown := unpackedOf(ns, c)
		if unknown != "" {
			b.Unknown |= constraint.Contents
			state.SetRequests(b, ns, spec, nil)
			return
		}
		spec, grants = cmp.Or(spec, unpacked.Spec), slices.Concat(grants, unpacked.Grants)
	}
	state.SetRequests(b, ns, spec, grants)
}

// explain adds why the contents of a ClusterServiceVersion are not known to a finding that depends on them.
func (c *Bundle) explain(f *constraint.Finding, ns *state.Namespace) {
	if f.Outcome != constraint.Undecided || f.Attributes&constraint.InCSV == 0 || !c.byReference() {
		return
	}
	if _, unknown := unpackedOf(ns, c); unknown != "" {
		f.Why += " (" + unknown + ")"
	}
}

var _ constraint.Manifest = &olm.Demands{}

// judgeConstraints judges a bundle by the Constraints of the cluster.
func (j *planJudge) judgeConstraints(c *Bundle, v *verdict.Verdict) {
	set := j.Namespace.Constraints()
	if set.Empty() {
		return
	}
	for _, d := range set.Applicable(j.Namespace.ForConstraints()) {
		v.Record(RuleBundleDependencyPending, state.ConstraintRef(d), true,
			j.Namespace.Suspended(d.Pending, d.Waits, d.Name, text.Name(c.name)))
	}
	for _, f := range set.Judge(c.forConstraints(j.Namespace), j.Namespace.ForConstraints(), j.budget) {
		c.explain(&f, j.Namespace)
		recordConstraintOn(j.Namespace, c, j.Now, v, text.Name(c.name), &f)
	}
}

// ofUnfinishedPlans reports whether a Constraint is undecided by packages and changes alone, which are read for
// unfinished plans only.
func ofUnfinishedPlans(f *constraint.Finding) bool {
	return f.Outcome == constraint.Undecided && f.Attributes != 0 &&
		f.Attributes&^(constraint.Deprecation|constraint.ChangeSet) == 0
}
