package bundle

import (
	"github.com/opgate/opgate/rules/verdict"
)

// RuleDependencyPending holds what a suspended policy governs.
const RuleDependencyPending verdict.RuleID = "bundle/dependency-pending"

var bundleDependencyPending = verdict.Rule{ID: RuleDependencyPending, Outcomes: verdict.Holds, Override: true,
	Backstop: true,
	Summary: "the OperatorPolicy of a ClusterServiceVersion of the plan, or a Constraint that applies here, waits for " +
		"what its Policy depends on"}
