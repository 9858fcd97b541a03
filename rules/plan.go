package rules

import (
	"fmt"
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// Standing says where one ClusterServiceVersion of a plan stands.
type Standing int

const (
	// Ungoverned CSVs belong to a package that no enforcing policy allows or forbids: a person may approve them.
	Ungoverned Standing = iota
	// Required CSVs are ungoverned, but an allowed one needs them (OLM pulled them in).
	Required
	// Allowed CSVs are let through by every enforcing policy of their package.
	Allowed
	// Held CSVs wait for something; that includes those whose package is not known.
	Held
	// Denied CSVs are refused.
	Denied
)

// String is the word used in explanations.
func (s Standing) String() string {
	return [...]string{"ungoverned", "required", "allowed", "held", "denied"}[s]
}

// CSVVerdict is the verdict on one ClusterServiceVersion of a plan.
type CSVVerdict struct {
	CSV string
	// Package and Version are empty where they are not known.
	Package, Version string
	Standing         Standing
	// By names the policies that allow it, or the CSV that requires it.
	By []string
	// Because has the messages of the reasons for which it is Held or Denied, in no particular order.
	Because []string
}

// PlanInput is all that judging an InstallPlan needs.
type PlanInput struct {
	// Plan is the plan with its stored status.
	Plan *olm.InstallPlan
	// Namespace is the plan's namespace; nil where nothing is known in it.
	Namespace *Namespace
	// Interrupt ends the evaluation of Constraints when it is closed; what was not judged is held. Nil never is.
	Interrupt <-chan struct{}
}

// contentRules judge what a ClusterServiceVersion is, in this order, all of them, for every policy of its package.
var contentRules = []struct {
	id    RuleID
	judge func(*planCSV, *Policy) finding
}{
	// A policy that cannot be read must not let anything through (threat G5).
	{RulePolicyUnreadable, func(c *planCSV, p *Policy) finding { return unreadable(p, text.Name(c.name)) }},
	// What must not be there is not installed.
	{RulePlanMustNotHave, forbiddenCSV},
	// The same name from another catalog is other content (threat O6).
	{RulePlanCatalog, foreignCSVCatalog},
	// Only listed versions are installed.
	{RulePlanVersion, unlistedCSV},
	// Only versions in the range are installed; 1.10 comes after 1.9 (threat O11).
	{RulePlanVersionRange, outOfRangeCSV},
}

// comingRules judge, after these, how a plan comes to it.
var comingRules = []struct {
	id    RuleID
	judge func(*PlanInput, *planCSV, *Policy) finding
}{
	// What waits for something else is not installed before it (seed 003).
	{RulePlanDependency, func(in *PlanInput, c *planCSV, p *Policy) finding {
		return in.Namespace.waiting(p.Pending, p.Name, text.Name(c.name))
	}},
	// An upgrade of what is installed waits where upgrades are not approved (threat O10).
	{RulePlanUpgrade, heldUpgrade},
	// What OLM resolved along another channel is not what the policy wants.
	{RulePlanChannel, foreignPlanChannel},
}

// JudgePlan answers whether a plan may be approved, by anyone: every ClusterServiceVersion in it must be
// let through by every enforcing policy of its package (threat O7: one allowed operator must not carry
// another), and by every Constraint. Where there are neither every plan may; what cannot work is warned of.
func JudgePlan(in PlanInput) Verdict {
	v := Verdict{Object: "installplan " + in.Plan.Metadata.Key()}
	j := newPlanJudge(in)
	if !in.Namespace.judged() {
		for i := range j.csvs {
			j.judgeNeeds(&j.csvs[i], &v)
		}
		return v.sorted()
	}
	if f := unfinished(in.Plan, len(j.csvs)); !f.silent() {
		recordForNamespace(&v, in.Namespace, RulePlanPhase, f)
		return v // whatever else is missing is only missing because of this
	}
	v.CSVs = make([]CSVVerdict, len(j.csvs))
	for i := range j.csvs {
		v.CSVs[i] = j.judgeCSV(&j.csvs[i], &v)
	}
	markRequired(j.csvs, v.CSVs)
	return v.sorted()
}

// unfinished holds plans that OLM has not finished writing: approving these collides with OLM's own write of
// the status and leaves duplicate plans (threat O5).
func unfinished(plan *olm.InstallPlan, csvs int) finding {
	what := ""
	switch {
	case plan.Oversized():
		return finding{decision: Hold, field: "status.plan", what: "a plan of this size cannot be judged and is held",
			accepted: fmt.Sprintf("at most %d names, steps and bundle lookups together are judged", olm.MaxPlanEntries)}
	case plan.Status.Phase == "" || plan.Status.Phase == olm.PhasePlanning:
		what = "the plan is not ready"
	case csvs == 0:
		what = "the plan names no ClusterServiceVersion"
	default:
		return finding{}
	}
	return finding{decision: Hold, field: "status.phase", what: what + " and is held",
		accepted: "waits until OLM has written its steps and asks for approval (phase " + olm.PhaseRequiresApproval + ")"}
}

// judgeCSV judges one ClusterServiceVersion: by the policies of its package, by the Constraints, and by what its
// bundle needs.
func (j *planJudge) judgeCSV(c *planCSV, v *Verdict) CSVVerdict {
	verdict := CSVVerdict{CSV: c.name, Package: c.pkg, Version: c.version}
	before := len(v.Reasons)
	verdict.Standing, verdict.By = judgeByPolicies(&j.PlanInput, c, v)
	j.judgeConstraints(c, v)
	j.judgeNeeds(c, v)
	for _, r := range v.Reasons[before:] {
		verdict.Because = append(verdict.Because, r.Message)
		switch r.Decision {
		case Deny:
			verdict.Standing = Denied
		case Hold:
			verdict.Standing = max(verdict.Standing, Held)
		case Allow: // no reason is one
		}
	}
	if verdict.Standing != Allowed {
		verdict.By = nil
	}
	return verdict
}

// judgeByPolicies gives where a ClusterServiceVersion stands if no policy refuses it, and the policies that allow it.
func judgeByPolicies(in *PlanInput, c *planCSV, v *Verdict) (standing Standing, by []string) {
	if c.unknown != "" && in.Namespace.governed() {
		recordForNamespace(v, in.Namespace, RulePlanUnknownCSV, finding{decision: Hold,
			what:     "the package of " + text.Name(c.name) + " is not known (" + c.unknown + ") and the plan is held",
			accepted: "waits until the bundle's properties or the status of a Subscription tell the package"})
		return Held, nil
	}
	for _, p := range in.Namespace.governing(c.pkg) {
		for _, rule := range contentRules {
			v.record(rule.id, p, rule.judge(c, p))
		}
		for _, rule := range comingRules {
			v.record(rule.id, p, rule.judge(in, c, p))
		}
		if p.Enforced && !p.MustNotHave {
			standing, by = Allowed, append(by, p.Source())
		}
	}
	return standing, by
}

// markRequired marks what the allowed CSVs require.
func markRequired(csvs []planCSV, verdicts []CSVVerdict) {
	var allowed []int
	for i := range verdicts {
		if verdicts[i].Standing == Allowed {
			allowed = append(allowed, i)
		}
	}
	alongRequired(csvs, allowed, func(i, from int) bool {
		if verdicts[i].Standing != Ungoverned {
			return false
		}
		verdicts[i].Standing = Required
		verdicts[i].By = []string{csvs[from].name}
		return true
	})
}

// alongRequired walks from some CSVs along what they require, and on from each that enter returns true for.
// That must be so once at most for each, so that packages that require each other end the walk instead of
// the process.
func alongRequired(csvs []planCSV, queue []int, enter func(i, from int) bool) {
	var offered map[olm.Capability][]int // most plans hold one operator, which requires none
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

// offersOf indexes CSVs by what they offer, each capability once for each CSV: bundles may repeat theirs by the thousand.
func offersOf(csvs []planCSV) map[olm.Capability][]int {
	offered := map[olm.Capability][]int{}
	for i := range csvs {
		for _, c := range append(csvs[i].provides[:len(csvs[i].provides):len(csvs[i].provides)], olm.Capability{Package: csvs[i].pkg}) {
			if by := offered[c]; len(by) == 0 || by[len(by)-1] != i {
				offered[c] = append(by, i)
			}
		}
	}
	delete(offered, olm.Capability{}) // what says nothing is no offer
	return offered
}

// matches tells whether a mustnothave policy means this CSV; sure is false where it might.
func (p *Policy) matches(c *planCSV) (match, sure bool) {
	if len(p.versions) > 0 && !p.lists(c.name) {
		return false, true
	}
	if p.versionRange != nil {
		in, err := p.versionRange.Contains(c.version)
		if err != nil {
			return false, false
		}
		if !in {
			return false, true
		}
	}
	if p.Catalog.Name == "" && p.Catalog.Namespace == "" {
		return true, true
	}
	if len(c.catalogs) == 0 {
		return false, c.pastOLM
	}
	for _, catalog := range c.catalogs {
		if !p.catalogMismatch(catalog) {
			return true, true
		}
	}
	return false, true
}

func forbiddenCSV(c *planCSV, p *Policy) finding {
	if !p.MustNotHave || p.faults != "" {
		return finding{}
	}
	switch match, sure := p.matches(c); {
	case match:
		return finding{decision: Deny, what: text.Name(c.name) + " is forbidden", accepted: "the policy is mustnothave for " + p.scope()}
	case !sure:
		return finding{decision: Hold, what: text.Name(c.name) + " is held",
			accepted: "its version or catalog is not known, and the policy is mustnothave for " + p.scope()}
	}
	return finding{}
}

// scope says what a mustnothave policy forbids.
func (p *Policy) scope() string {
	var parts []string
	if len(p.versions) > 0 {
		parts = append(parts, text.Names(p.versions, maxListed))
	} else {
		parts = append(parts, "package "+p.Package)
	}
	if p.versionRange != nil {
		parts = append(parts, "in range "+text.Quote(p.versionRange.String()))
	}
	if p.Catalog.Name != "" || p.Catalog.Namespace != "" {
		parts = append(parts, "from "+p.catalogText())
	}
	return strings.Join(parts, " ")
}

func foreignCSVCatalog(c *planCSV, p *Policy) finding {
	if p.MustNotHave || p.faults != "" || p.Catalog.Name == "" && p.Catalog.Namespace == "" {
		return finding{}
	}
	if c.pastOLM {
		return finding{decision: Deny, what: text.Name(c.name) + ", which comes from no catalog, is not allowed", accepted: "allowed is " + p.catalogText()}
	}
	if len(c.catalogs) == 0 {
		return finding{decision: Hold, what: "the catalog of " + text.Name(c.name) + " is not known and the plan is held", accepted: "allowed is " + p.catalogText()}
	}
	for _, catalog := range c.catalogs {
		if p.catalogMismatch(catalog) {
			return finding{decision: Deny, what: fmt.Sprintf("%s from catalog %s/%s is not allowed", text.Name(c.name), text.Name(catalog.Namespace), text.Name(catalog.Name)),
				accepted: "allowed is " + p.catalogText()}
		}
	}
	return finding{}
}

func unlistedCSV(c *planCSV, p *Policy) finding {
	if p.MustNotHave || p.faults != "" || len(p.versions) == 0 || p.lists(c.name) || p.namesStart(c.name) {
		return finding{}
	}
	return finding{decision: Deny, what: text.Name(c.name) + " is not allowed", accepted: p.acceptedVersions()}
}

func outOfRangeCSV(c *planCSV, p *Policy) finding {
	if p.MustNotHave || p.versionRange == nil || p.namesStart(c.name) {
		return finding{}
	}
	allowed := "allowed is versionRange " + text.Quote(p.versionRange.String())
	if c.version == "" {
		return finding{decision: Hold, what: "the version of " + text.Name(c.name) + " is not known and the plan is held", accepted: allowed}
	}
	in, err := p.versionRange.Contains(c.version)
	switch {
	case err != nil:
		return finding{decision: Hold, what: text.Name(c.name) + ", whose " + err.Error() + ", is held", accepted: allowed}
	case !in:
		return finding{decision: Deny, what: text.Name(c.name) + " (version " + text.Name(c.version) + ") is not allowed", accepted: allowed}
	}
	return finding{}
}

func heldUpgrade(in *PlanInput, c *planCSV, p *Policy) finding {
	if p.MustNotHave || p.ApproveUpgrades || p.faults != "" {
		return finding{}
	}
	installed := in.Namespace.installedOf(c.pkg, c.name)
	if installed == "" {
		return finding{} // a first install needs no upgrade approval (seed 001)
	}
	return finding{decision: Hold, what: "the upgrade of " + text.Name(installed) + " to " + text.Name(c.name) + " is held",
		accepted: "waits for spec.upgradeApproval: Automatic"}
}

func foreignPlanChannel(in *PlanInput, c *planCSV, p *Policy) finding {
	if p.MustNotHave || p.Channel == "" || p.faults != "" {
		return finding{}
	}
	for _, s := range in.Namespace.subscribers(c.pkg) {
		if s.Spec.Channel != p.Channel {
			return finding{decision: Hold,
				what:     fmt.Sprintf("%s, from channel %s of subscription %s, is held", text.Name(c.name), text.Quote(s.Spec.Channel), s.Metadata.Name),
				accepted: "waits until it follows channel " + text.Name(p.Channel)}
		}
	}
	return finding{}
}
