// Package rules holds every decision that Opgate takes. It is pure: no client, no HTTP, no clock, no logger and no error
// return. A caller gathers what it knows into an input struct and gets a Verdict; what could not be read is an input state that
// denies or holds, never one that allows.
//
// Admission, the background loop and `opgate check` call the same entry points with the same inputs, so that the three never
// disagree:
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
//	JudgePolicy            creating and updating a Policy; Needs lists the rights that its author must have
//	JudgePolicySet         creating and updating a PolicySet
//
// The code behind a refusal is found by the ID in its message. The constant of a rule spells the ID (plan/version is
// RulePlanVersion), and stands with the rule's outcome and summary in the file of its subject, beside the function that judges it:
// files are named after the kind, then the subject (plan_contents.go, plan_upgrade.go, subscription_approval.go). rule.go lists the
// rules of each kind. An entry point runs all rules of its kind; a check is a small function in a declared slice where several run
// for each policy.
//
// Type Policy is an OperatorPolicy made ready for judging. Kind Policy, of which package dependency reads the dependencies, is
// judged in policy*.go: its verdicts need Verdict and Rule, which package dependency, below this one, does not know.
package rules
