package rules

import (
	"cmp"
	"slices"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
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
		strict: in.Namespace.mayRefuse()}
	for i := range j.csvs {
		j.csvs[i].compareUnpacked(in.Namespace)
	}
	return j
}

// compareUnpacked compares the release of a ClusterServiceVersion that a plan refers to with the one that OLM unpacked,
// if that is known. Else it is compared when OLM writes the object.
func (c *Bundle) compareUnpacked(ns *Namespace) {
	if c.spec != nil {
		return
	}
	if unpacked, unknown := ns.unpackedOf(c); unknown == "" {
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
			j.others = append(j.others, installed.forConstraints(j.Namespace))
		}
	}
	return j.others
}

// bundle returns a ClusterServiceVersion of a plan as Constraints see it.
func (c *Bundle) forConstraints(ns *Namespace) *constraint.Bundle {
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
	configOf(b, ns)
	// A dependency of another operator follows no channel until it has a Subscription.
	for _, s := range ns.subscribers(c.pkg) {
		if s.Spec.Channel == "" || b.Channel != "" && b.Channel != s.Spec.Channel {
			b.Unknown |= constraint.Channel // the catalog's default, which the plan does not contain
		}
		b.Channel = s.Spec.Channel
	}
	return b
}

// bundle returns an installed ClusterServiceVersion as Constraints see it.
func (c *Installed) forConstraints(ns *Namespace) *constraint.Bundle {
	b := &constraint.Bundle{CSV: c.CSV, Package: c.Package, Version: c.Version, Release: c.stated,
		Properties: c.Properties, Channel: c.Channel, Catalog: c.Catalog,
		Unknown: constraint.Deprecation | constraint.ChangeSet}
	for _, missing := range []struct {
		missing bool
		what    constraint.Attributes
	}{
		{c.Package == "", constraint.Package}, {c.Version == "", constraint.Version},
		{!c.Described, constraint.Properties | constraint.Release},
		{c.Channel == "", constraint.Channel}, {c.Catalog == olm.Catalog{}, constraint.CatalogSource},
	} {
		if missing.missing {
			b.Unknown |= missing.what
		}
	}
	requests(b, ns, c.spec, nil)
	configOf(b, ns)
	return b
}

// configOf sets the config of the Subscription to the package; none where there is no Subscription. It is not known if
// it cannot be read, or if several Subscriptions differ.
func configOf(b *constraint.Bundle, ns *Namespace) {
	if b.Unknown&constraint.Package != 0 {
		b.Unknown |= constraint.Config
		return
	}
	for i, s := range ns.subscribers(b.Package) {
		if i == 0 {
			b.Config = s.Spec.Config
		}
		if s.Spec.Config.Fault != "" || s.Spec.Config != b.Config {
			b.Unknown |= constraint.Config
		}
	}
}

// requests sets what the contents of a ClusterServiceVersion of a plan request: those that the plan contains, and those
// that OLM unpacked.
func (c *Bundle) requests(b *constraint.Bundle, ns *Namespace) {
	spec, grants := c.spec, c.grants
	if c.byReference() {
		unpacked, unknown := ns.unpackedOf(c)
		if unknown != "" {
			b.Unknown |= constraint.Contents
			requests(b, ns, spec, nil)
			return
		}
		spec, grants = cmp.Or(spec, unpacked.Spec), slices.Concat(grants, unpacked.Grants)
	}
	requests(b, ns, spec, grants)
}

// explain adds why the contents of a ClusterServiceVersion are not known to a finding that depends on them.
func (c *Bundle) explain(f *constraint.Finding, ns *Namespace) {
	if f.Outcome != constraint.Undecided || f.Attributes&constraint.InCSV == 0 || !c.byReference() {
		return
	}
	if _, unknown := ns.unpackedOf(c); unknown != "" {
		f.Why += " (" + unknown + ")"
	}
}

// requests sets what the contents of a ClusterServiceVersion request; its spec is nil if they are not known.
func requests(b *constraint.Bundle, ns *Namespace, spec *olm.CSVSpec, grants []*olm.Grants) {
	if spec == nil {
		b.Unknown |= constraint.InCSV
		if b.Release != "" { // its properties state it
			b.Unknown &^= constraint.Release
		}
		return
	}
	release, problem := spec.Release(b.Release)
	if b.Release = release; problem != "" {
		b.Unknown |= constraint.Release
	}
	demands := &olm.Demands{Spec: spec, Grants: grants, Scope: ns.scope()}
	if demands.ScopeMatters() {
		b.Unknown |= constraint.Scope // it must not read as named namespaces, which get fewer rights
	}
	b.Manifest = demands
}

var _ constraint.Manifest = &olm.Demands{}

// judgeConstraints judges a bundle by the Constraints of the cluster.
func (j *planJudge) judgeConstraints(c *Bundle, v *verdict.Verdict) {
	set := j.Namespace.Constraints()
	if set.Empty() {
		return
	}
	for _, d := range set.Applicable(j.Namespace.ForConstraints()) {
		v.Record(RuleBundleDependencyPending, constraintRef(d), true, j.Namespace.suspended(d.Pending, d.Waits, d.Name,
			text.Name(c.name)))
	}
	for _, f := range set.Judge(c.forConstraints(j.Namespace), j.Namespace.ForConstraints(), j.budget) {
		c.explain(&f, j.Namespace)
		j.Namespace.recordConstraintOn(c, j.Now, v, text.Name(c.name), &f)
	}
}

// recordConstraint records a violated Constraint: it refuses, or warns if that is the Constraint's action.
func recordConstraint(v *verdict.Verdict, id verdict.RuleID, what string, f *constraint.Finding) {
	enforced := f.Constraint == nil || f.Constraint.Action == constraint.Require
	v.Record(id, constraintRef(f.Definition), enforced, constraintFinding(what, f))
}

func constraintFinding(what string, f *constraint.Finding) verdict.Finding {
	field := constraintPath(f)
	switch f.Outcome {
	case constraint.Violated:
		return verdict.Finding{Decision: verdict.Deny, Field: field, What: what + " is not allowed",
			Accepted: mustSatisfy(f)}
	case constraint.Undecided:
		return verdict.Finding{Decision: verdict.Hold, Field: field, What: what + " is held",
			Accepted: field + " cannot be judged, since " + text.Escape(f.Why) + "; " + mustSatisfy(f)}
	case constraint.Failed:
		return verdict.Finding{Decision: verdict.Hold, Field: field, What: what + " is held",
			Accepted: cannotJudge(field, f)}
	case constraint.Satisfied:
	}
	return verdict.Finding{}
}

// ofUnfinishedPlans reports whether a Constraint is undecided by packages and changes alone, which are read for
// unfinished plans only.
func ofUnfinishedPlans(f *constraint.Finding) bool {
	return f.Outcome == constraint.Undecided && f.Attributes != 0 &&
		f.Attributes&^(constraint.Deprecation|constraint.ChangeSet) == 0
}

// constraintPath returns the path of the constraint in its object.
func constraintPath(f *constraint.Finding) string {
	if f.Constraint == nil {
		return "spec"
	}
	return f.Constraint.Path
}

// cannotJudge returns why a constraint failed, and what it requires.
func cannotJudge(field string, f *constraint.Finding) string {
	why := field + " cannot be judged: " + text.Escape(f.Why)
	if f.Rule == "" {
		return why
	}
	return why + "; " + mustSatisfy(f)
}

// mustSatisfy returns what is required, in the words of the admin if there are any.
func mustSatisfy(f *constraint.Finding) string {
	rule := "it must satisfy " + text.Escape(f.Rule)
	if f.Message == "" {
		return rule
	}
	return text.Escape(f.Message) + " (" + rule + ")"
}
