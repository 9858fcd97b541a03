package bundle

import (
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// contentChecks judge the contents of a ClusterServiceVersion: all of them, in this order, for every policy of its
// package.
var contentChecks = []struct {
	verdict.Rule
	judge func(*carrier.Bundle, *state.OperatorPolicy) verdict.Finding
}{
	// A policy that cannot be read must not let anything through (threat G5).
	{policyUnreadable, func(c *carrier.Bundle, p *state.OperatorPolicy) verdict.Finding {
		return Unreadable(p, text.Name(c.Name))
	}},
	// Forbidden operators are not installed.
	{bundleMustNotHave, forbiddenCSV},
	// The same name from another catalog is other content (threat O6).
	{bundleCatalog, foreignCSVCatalog},
	// Only listed versions are installed.
	{bundleVersion, unlistedCSV},
	// Only versions in the range are installed; 1.10 comes after 1.9 (threat O11).
	{bundleVersionRange, outOfRangeCSV},
}

// progressChecks judge how a plan leads to a ClusterServiceVersion, after contentChecks.
var progressChecks = []struct {
	verdict.Rule
	judge func(*Input, *carrier.Bundle, *state.OperatorPolicy) verdict.Finding
}{
	// What depends on something else is not installed before it (R-DP-4).
	{bundleDependencyPending, func(in *Input, c *carrier.Bundle, p *state.OperatorPolicy) verdict.Finding {
		return in.Namespace.Suspended(p.Pending, p.Waits, p.Name, text.Name(c.Name))
	}},
	// An upgrade of an installed operator is held if upgrades are not approved (threat O10).
	{bundleUpgrade, heldUpgrade},
	// A version that OLM resolved from another channel is not what the policy wants.
	{bundleChannel, foreignPlanChannel},
	// What the catalog deprecates gets no fixes.
	{bundleDeprecated, heldDeprecated},
	// What another image of the catalog offers was not reviewed (threat O26).
	{bundleCatalogDigest, heldCatalogDigest},
	// What a catalog offers after a jump may be for another cluster, or a mistake (threat O28).
	{bundleCatalogJump, heldCatalogJump},
	// What has just come is tried by others first.
	{bundleMinimumAge, heldAge},
	// What is approved outside of a maintenance window disturbs when no one expects it.
	{bundleApprovalWindow, heldWindow},
}

// JudgeContents judges a ClusterServiceVersion that no plan brings by the policies of its package. An update, of what
// was there before, is refused for what it changes. Exceptions are about what plans bring, so that none counts.
func JudgeContents(ns *state.Namespace, c, before *carrier.Bundle, v *verdict.Verdict) {
	for _, p := range ns.Governing(c.Package) {
		if before == nil {
			judgeUnreviewed(c, p, v)
		}
		for _, rule := range contentChecks {
			f := rule.judge(c, p)
			if before == nil || before.Package != c.Package || f != rule.judge(before, p) {
				p.Record(v, rule.ID, f)
			}
		}
	}
}
