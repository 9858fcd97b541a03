// Package rules makes every decision of Opgate. It is pure: no client, no HTTP, no clock, no logger and no error
// return. A caller collects its input in a struct and gets a Verdict; what could not be read is an input state that
// denies or holds, never one that allows.
//
// Admission, the background loop and `opgate check` call the same entry points with the same inputs, so that the three
// never disagree:
//
//	JudgeSubscription      creating and updating a Subscription
//	JudgePlan              may this InstallPlan be approved, by anyone?
//	JudgePlanCreate        creating an InstallPlan
//	JudgePlanUpdate        updating one: approvals, overrides, what is frozen
//	JudgePlanStatusUpdate  writing its status
//	JudgeApproval          should the loop approve this plan by itself?
//	JudgeCSV               creating and updating a ClusterServiceVersion, as a step of a plan or not
//	JudgeEscape            a stored ClusterServiceVersion that admission was not asked about
//	JudgeOperatorPolicy    creating and updating an OperatorPolicy
//	JudgeConstraint        creating and updating a Constraint
//
// Package bundle judges what a plan or a ClusterServiceVersion brings, dependency Policies and PolicySets. What rules
// judge by is in packages below, which have no rule: carrier extracts bundles from what brings them, facts has what is
// known of the cluster, state of a namespace and its policies, and evidence what a plan states of overrides and
// consents.
//
// The code behind a refusal is found by the ID in its message. The constant of a rule spells the ID (plan/frozen is
// RulePlanFrozen, bundle/version is bundle.RuleVersion), and is declared with the rule's outcome and summary beside the
// function that judges it: files are named after the kind, then the subject (subscription_approval.go), in package
// bundle after the subject (version.go, upgrade.go). rules.go lists the rules of each kind. An entry point runs all
// rules of its kind; where several run for each policy, a check is a small function in a declared slice. What a rule
// and a verdict are is in package verdict.
package rules
