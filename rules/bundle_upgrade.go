package rules

import (
	"fmt"

	"github.com/opgate/opgate/internal/text"
)

// The rules on how a plan leads to a ClusterServiceVersion.
const (
	RuleBundleChannel RuleID = "bundle/channel"
	RuleBundleUpgrade RuleID = "bundle/upgrade"
)

var (
	bundleChannel = Rule{ID: RuleBundleChannel, Outcomes: hold, Override: true, Edit: nameChannel,
		Summary: "the Subscription behind a ClusterServiceVersion follows another channel than the policy names"}
	bundleUpgrade = Rule{ID: RuleBundleUpgrade, Outcomes: hold, Override: true, Edit: approveUpgrades,
		Summary: "the plan upgrades an installed operator and the policy's upgradeApproval is None"}
)

// progressChecks judge how a plan leads to a ClusterServiceVersion, after contentChecks.
var progressChecks = []struct {
	Rule
	judge func(*PlanInput, *Bundle, *OperatorPolicy) finding
}{
	// What depends on something else is not installed before it (R-DP-4).
	{bundleDependencyPending, func(in *PlanInput, c *Bundle, p *OperatorPolicy) finding {
		return in.Namespace.suspended(p.Pending, p.Waits, p.Name, text.Name(c.name))
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
	// What is approved outside of a maintenance window disturbs when no one expects it.
	{bundleApprovalWindow, heldWindow},
}

func heldUpgrade(in *PlanInput, c *Bundle, p *OperatorPolicy) finding {
	if p.MustNotHave || p.ApproveUpgrades || p.faults != "" {
		return finding{}
	}
	installed, ends := in.Namespace.replacedBy(c)
	if installed == "" {
		return finding{} // a first install needs no upgrade approval (R-OP-10)
	}
	return finding{decision: Hold, what: "the upgrade of " + text.Name(installed) + " to " + text.Name(c.name) + " is held",
		accepted: "waits for spec.upgradeApproval: Automatic" + ends}
}

func foreignPlanChannel(in *PlanInput, c *Bundle, p *OperatorPolicy) finding {
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
