package rules

import (
	"github.com/opgate/opgate/rules/verdict"
)

// RuleBundleDependencyPending holds what a suspended policy governs.
const RuleBundleDependencyPending verdict.RuleID = "bundle/dependency-pending"

var bundleDependencyPending = verdict.Rule{ID: RuleBundleDependencyPending, Outcomes: verdict.Holds, Override: true,
	Backstop: true,
	Summary: "the OperatorPolicy of a ClusterServiceVersion of the plan, or a Constraint that applies here, waits for " +
		"what its Policy depends on"}
