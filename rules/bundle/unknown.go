package bundle

import (
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleUnknown is on missing information about a bundle.
const RuleUnknown verdict.RuleID = "bundle/unknown"

var bundleUnknown = verdict.Rule{ID: RuleUnknown, Outcomes: verdict.Holds, Override: true, Backstop: true,
	Summary: "the package of a ClusterServiceVersion is not known, or sources disagree about it or about its release"}

// recordUnknown holds a bundle whose package is not known, where policies govern any; held is what is held.
func recordUnknown(c *carrier.Bundle, ns *state.Namespace, held, accepted string, v *verdict.Verdict) bool {
	if c.Unknown == "" || !ns.Governed() {
		return false
	}
	of := "package"
	if c.Ambiguous {
		of = "release"
	}
	state.RecordForNamespace(v, ns, RuleUnknown, verdict.Finding{Decision: verdict.Hold, Accepted: accepted,
		What: "the " + of + " of " + text.Name(c.Name) + " is not known (" + c.Unknown + ") and " + held + " is held"})
	return true
}

// awaited returns what would make a bundle of a plan known.
func awaited(c *carrier.Bundle) string {
	if c.Ambiguous {
		return "allowed is a bundle whose property olm.package and spec.release say the same release"
	}
	return "waits until the bundle's properties or the status of a Subscription tell the package"
}

// installFrom is what is accepted in place of what bypasses OLM.
const installFrom = "let OLM install it, from a Subscription"

// JudgeUnknown holds a ClusterServiceVersion whose package is not known and that no plan brings.
func JudgeUnknown(c *carrier.Bundle, ns *state.Namespace, v *verdict.Verdict) {
	recordUnknown(c, ns, "it", installFrom, v)
}
