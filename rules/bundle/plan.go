package bundle

import (
	"slices"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// Input is a plan, and what its bundles are judged by.
type Input struct {
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

// Plan judges the ClusterServiceVersions of a plan, and holds what is computed once for all of them.
type Plan struct {
	Input
	Bundles []carrier.Bundle
	budget  *constraint.Budget
	// others are all that may satisfy the constraints that a bundle brings along; nil until first use.
	others []*constraint.Bundle
}

// NewPlan reads the ClusterServiceVersions of a plan.
func NewPlan(in Input) *Plan {
	j := &Plan{Input: in, Bundles: carrier.OfPlan(in.Plan, in.Namespace), budget: constraint.NewBudget(in.Interrupt)}
	for i := range j.Bundles {
		j.Bundles[i].CompareUnpacked(in.Namespace)
	}
	return j
}

// Judge judges each ClusterServiceVersion of the plan, in the order of the plan.
func (j *Plan) Judge(v *verdict.Verdict) []verdict.CSV {
	judged := make([]verdict.CSV, len(j.Bundles))
	for i := range j.Bundles {
		judged[i] = j.judge(&j.Bundles[i], v)
	}
	j.markRequired(judged)
	return judged
}

// JudgeNeeds judges of each ClusterServiceVersion of the plan only what it depends on, and what it replaces: no policy
// is read.
func (j *Plan) JudgeNeeds(v *verdict.Verdict) {
	for i := range j.Bundles {
		j.judgeNeeds(&j.Bundles[i], v)
		judgeReplaces(j.Namespace, &j.Bundles[i], nil, j.Now, v)
	}
}

// judge judges one ClusterServiceVersion: by the policies of its package, by the Constraints, and by the dependencies
// of its bundle.
func (j *Plan) judge(c *carrier.Bundle, v *verdict.Verdict) verdict.CSV {
	judged := verdict.CSV{CSV: c.Name, Package: c.Package, Version: c.Version, Release: c.Release}
	before := len(v.Reasons)
	judged.Disposition, judged.By = judgeByPolicies(&j.Input, c, v)
	judgeReplaces(j.Namespace, c, nil, j.Now, v)
	j.judgeConstraints(c, v)
	j.judgeNeeds(c, v)
	conclude(&judged, v.Reasons[before:])
	return judged
}

// conclude adds the reasons against a ClusterServiceVersion to what is known of it.
func conclude(judged *verdict.CSV, reasons []verdict.Reason) {
	for _, r := range reasons {
		judged.Because = append(judged.Because, r.Message)
		if judged.Disposition = max(judged.Disposition, verdict.Held); r.Decision == verdict.Deny {
			judged.Disposition = verdict.Denied
		}
	}
	if judged.Disposition != verdict.Allowed {
		judged.By = nil
	}
}

// judgeByPolicies returns the disposition of a ClusterServiceVersion if no policy refuses it, and the policies that
// allow it.
func judgeByPolicies(in *Input, c *carrier.Bundle, v *verdict.Verdict) (disposition verdict.Disposition, by []string) {
	if recordUnknown(c, in.Namespace, "the plan", awaited(c), v) {
		return verdict.Held, nil
	}
	disposition, by = judgeContents(in.Namespace, c, in.Now, "", v)
	for _, p := range in.Namespace.Governing(c.Package) {
		for i := range all {
			recordOn(p, c, in.Now, v, all[i].ID, all[i].progress.Judge(planned{in, c}, p))
		}
	}
	judgeChange(in.Namespace, in.Plan, c, in.Now, "", v)
	return disposition, by
}

// judgeContents judges a bundle by each policy of its package, whatever brings it; more follows what would be accepted.
// It returns what judgeByPolicies does.
func judgeContents(
	ns *state.Namespace, c *carrier.Bundle, now time.Time, more string, v *verdict.Verdict,
) (disposition verdict.Disposition, by []string) {
	for _, p := range ns.Governing(c.Package) {
		for i := range all {
			f := all[i].contents.Judge(c, p)
			f.Accepted += more
			recordOn(p, c, now, v, all[i].ID, f)
		}
		if p.Enforced && !p.MustNotHave {
			disposition, by = verdict.Allowed, append(by, p.Source())
		}
	}
	return disposition, by
}

// markRequired marks what the allowed CSVs require.
func (j *Plan) markRequired(verdicts []verdict.CSV) {
	var allowed []int
	for i := range verdicts {
		if verdicts[i].Disposition == verdict.Allowed {
			allowed = append(allowed, i)
		}
	}
	carrier.AlongRequired(j.Bundles, allowed, func(i, from int) bool {
		if verdicts[i].Disposition != verdict.Ungoverned {
			return false
		}
		verdicts[i].Disposition = verdict.Required
		verdicts[i].By = []string{j.Bundles[from].Name}
		return true
	})
}

// candidates returns the bundles of the plan, and the installed ones that the plan does not replace.
func (j *Plan) candidates() []*constraint.Bundle {
	if j.others != nil {
		return j.others
	}
	for i := range j.Bundles {
		j.others = append(j.others, j.Bundles[i].ForConstraints(j.Namespace))
	}
	for _, installed := range j.Namespace.Installed() {
		replaced := func(c carrier.Bundle) bool {
			return c.Package != "" && c.Package == installed.Package || c.Name == installed.Name
		}
		if !slices.ContainsFunc(j.Bundles, replaced) {
			j.others = append(j.others, installed.ForConstraints(j.Namespace))
		}
	}
	return j.others
}

// judgeNeeds judges a bundle's dependencies, its cluster requirements, and the consent of the operator that it
// replaces. OLM's resolver has checked the first alone: OLM installs the bundle, and then it stays Pending, for ever or
// until the other operator consents.
func (j *Plan) judgeNeeds(c *carrier.Bundle, v *verdict.Verdict) {
	for i := range all {
		if all[i].needs == nil {
			continue
		}
		all[i].needs(j, c, func(what, accepted string) {
			f := verdict.Finding{What: text.Name(c.Name) + " " + what, Accepted: accepted}
			if j.Namespace.MayRefuse() { // elsewhere problems are only warned of
				f.Decision, f.What = verdict.Hold, f.What+" and is held"
			}
			v.Add(all[i].ID, f)
		})
	}
}

func ownConstraints(j *Plan, c *carrier.Bundle, held func(what, accepted string)) {
	if !constraint.BringsOwn(c.Properties) {
		return
	}
	for _, f := range j.Namespace.Constraints().Own(c.ForConstraints(j.Namespace), j.candidates(),
		j.Namespace.ForConstraints(), j.budget) {
		held("has a constraint that nothing satisfies", missing(&f))
	}
}

func newerKubernetes(j *Plan, c *carrier.Bundle, held func(what, accepted string)) {
	if c.Spec == nil {
		return
	}
	if what, accepted := j.Namespace.Facts().TooOldFor(c.Spec.MinKubeVersion); what != "" {
		held(what, accepted)
	}
}

// olderOpenShift judges property olm.maxOpenShiftVersion.
func olderOpenShift(j *Plan, c *carrier.Bundle, held func(what, accepted string)) {
	cluster := j.Namespace.Facts()
	if cluster.OpenShift == "" {
		return
	}
	limit, problem := (&constraint.Bundle{Bundle: olm.Bundle{Properties: c.AllProperties()}}).MaxOpenShift()
	if problem != "" {
		held("has a property olm.maxOpenShiftVersion that cannot be read", problem)
	} else if what, accepted := cluster.TooNewFor(limit); what != "" {
		held(what, accepted)
	}
}

// notUpgradeable holds what replaces an operator that does not consent.
func notUpgradeable(j *Plan, c *carrier.Bundle, held func(what, accepted string)) {
	if old := j.Namespace.NotUpgradeable(c.Package, c.Name); old != nil {
		name := text.Name(old.Name)
		held("cannot replace "+name+" now", "OperatorCondition "+name+": "+old.NotUpgradeable+
			"; waits until the operator sets Upgradeable to True, or an admin does in spec.overrides")
	}
}

// missing returns what a bundle's own constraint requires.
func missing(f *constraint.Result) string {
	why := "neither the plan, nor what is installed here, nor the cluster satisfies " + text.Escape(f.Rule)
	if f.Outcome == constraint.Failed {
		why = "it cannot be judged: " + text.Escape(f.Why)
	}
	if f.Message != "" {
		return text.Quote(f.Message) + "; " + why
	}
	return why
}

// recordOn records a finding of a policy on a bundle. If an exception sets the rule aside, that is a warning, which
// names the exception before the refusal.
func recordOn(
	p *operatorpolicy.Policy, c *carrier.Bundle, now time.Time, v *verdict.Verdict, id verdict.RuleID, f verdict.Finding,
) {
	if f.Silent() {
		return
	}
	digest, _ := c.Digest() // where it is not known, names with a digest do not count
	if e := p.Exceptions().For(id, c.Name, digest, p.TargetNamespace, now); e != nil {
		setAside(v, e, id, p.Ref(), f)
		return
	}
	p.Record(v, id, f)
}

// setAside records a finding that an exception of its source sets aside.
func setAside(
	v *verdict.Verdict, e *operatorpolicy.Exception, id verdict.RuleID, from verdict.PolicyRef, f verdict.Finding,
) {
	v.Add(RuleException, verdict.Finding{From: from, Excepted: true, Field: f.Field,
		What:     "set aside by " + e.Text(from.String()),
		Accepted: verdict.Sentence(f.What+" by "+from.String(), id, f.Accepted)})
}

// recordConstraintOn records that a bundle violates a Constraint. If an exception sets that aside, it is a warning. A
// Constraint that cannot be read has no exceptions.
func recordConstraintOn(
	n *state.Namespace, c *carrier.Bundle, now time.Time, v *verdict.Verdict, what string, f *constraint.Result,
) {
	digest, _ := c.Digest() // where it is not known, names with a digest do not count
	e := n.ExceptionsOf(f.Definition, c.Package, c.Catalogs...).For(RuleConstraint, c.Name, digest, n.Name(), now)
	if e == nil || f.Constraint == nil {
		state.RecordConstraint(v, RuleConstraint, what, f)
		return
	}
	setAside(v, e, RuleConstraint, state.ConstraintRef(f.Definition), state.ConstraintFinding(what, f))
}

// judgeConstraints judges a bundle by the Constraints of the cluster.
func (j *Plan) judgeConstraints(c *carrier.Bundle, v *verdict.Verdict) {
	set := j.Namespace.Constraints()
	if set.Empty() {
		return
	}
	for _, d := range set.Applicable(j.Namespace.ForConstraints()) {
		v.Record(RuleDependencyPending, state.ConstraintRef(d), true,
			state.Suspended(d.Pending, d.Waits, text.Name(c.Name)))
	}
	for _, f := range set.Judge(c.ForConstraints(j.Namespace), j.Namespace.ForConstraints(), j.budget) {
		c.Explain(&f, j.Namespace)
		recordConstraintOn(j.Namespace, c, j.Now, v, text.Name(c.Name), &f)
	}
}

// ofUnfinishedPlans reports whether a Constraint is undecided by packages and changes alone, which are read for
// unfinished plans only.
func ofUnfinishedPlans(f *constraint.Result) bool {
	return f.Outcome == constraint.Undecided && f.Attributes != 0 &&
		f.Attributes&^(constraint.Deprecation|constraint.ChangeSet) == 0
}
