package rules

import (
	"fmt"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on how a plan leads to a ClusterServiceVersion.
const (
	RuleBundleChannel verdict.RuleID = "bundle/channel"
	RuleBundleUpgrade verdict.RuleID = "bundle/upgrade"
)

var (
	bundleChannel = verdict.Rule{ID: RuleBundleChannel, Outcomes: verdict.Holds, Override: true, Edit: nameChannel,
		Summary: "the Subscription behind a ClusterServiceVersion follows another channel than the policy names"}
	bundleUpgrade = verdict.Rule{ID: RuleBundleUpgrade, Outcomes: verdict.Holds, Override: true, Edit: approveUpgrades,
		Summary: "the plan upgrades an installed operator and the policy's upgradeApproval is None"}
)

// progressChecks judge how a plan leads to a ClusterServiceVersion, after contentChecks.
var progressChecks = []struct {
	verdict.Rule
	judge func(*PlanInput, *Bundle, *state.OperatorPolicy) verdict.Finding
}{
	// What depends on something else is not installed before it (R-DP-4).
	{bundleDependencyPending, func(in *PlanInput, c *Bundle, p *state.OperatorPolicy) verdict.Finding {
		return in.Namespace.Suspended(p.Pending, p.Waits, p.Name, text.Name(c.name))
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

func heldUpgrade(in *PlanInput, c *Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.ApproveUpgrades || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	installed, ends := in.Namespace.ReplacedBy(c.pkg, c.name)
	if installed == "" {
		return verdict.Finding{} // a first install needs no upgrade approval (R-OP-10)
	}
	return verdict.Finding{Decision: verdict.Hold,
		What:     "the upgrade of " + text.Name(installed) + " to " + text.Name(c.name) + " is held",
		Accepted: "waits for spec.upgradeApproval: Automatic" + ends}
}

func foreignPlanChannel(in *PlanInput, c *Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.Channel == "" || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	for _, s := range in.Namespace.Subscribers(c.pkg) {
		if s.Spec.Channel != p.Channel {
			return verdict.Finding{Decision: verdict.Hold,
				What: fmt.Sprintf("%s, from channel %s of subscription %s, is held", text.Name(c.name),
					text.Quote(s.Spec.Channel), s.Metadata.Name),
				Accepted: "waits until it follows channel " + text.Name(p.Channel)}
		}
	}
	return verdict.Finding{}
}
