package bundle

import (
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleUpgrade is on upgrades of what is installed.
const RuleUpgrade verdict.RuleID = "bundle/upgrade"

var bundleUpgrade = verdict.Rule{ID: RuleUpgrade, Outcomes: verdict.Holds, Override: true, Edit: approveUpgrades,
	Summary: "the plan upgrades an installed operator and the policy's upgradeApproval is None"}

func heldUpgrade(in *Input, c *carrier.Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.ApproveUpgrades || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	installed, ends := in.Namespace.ReplacedBy(c.Package, c.Name)
	if installed == "" {
		return verdict.Finding{} // a first install needs no upgrade approval (R-OP-10)
	}
	return verdict.Finding{Decision: verdict.Hold,
		What:     "the upgrade of " + text.Name(installed) + " to " + text.Name(c.Name) + " is held",
		Accepted: "waits for spec.upgradeApproval: Automatic" + ends}
}
