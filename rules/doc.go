// Package rules makes every decision of Opgate. It is pure: no client, no HTTP, no clock, no logger and no error
// return. A caller collects its input in a struct and gets a Verdict; what could not be read is an input state that
// denies or holds, never one that allows.
//
// Admission, the background loop and `opgate check` call the same entry points with the same inputs, so that the three
// never disagree:
//
//	JudgeSubscription       creating and updating a Subscription
//	JudgePlan               may this InstallPlan be approved, by anyone?
//	JudgePlanCreate         creating an InstallPlan
//	JudgePlanUpdate         updating one: approvals, overrides, what is frozen
//	JudgePlanStatusUpdate   writing its status
//	JudgeApproval           should the loop approve this plan by itself?
//	JudgeCSV                creating and updating a ClusterServiceVersion, as a step of a plan or not
//	JudgeEscape             a stored ClusterServiceVersion that admission was not asked about
//	bundle.JudgeInstalled   an installed operator, whatever installed it
//	JudgeCatalogSource      creating a CatalogSource, and changing its spec
//	JudgeOperatorGroup      creating an OperatorGroup, and changing its spec
//	JudgeClusterExtension   creating a ClusterExtension of OLM v1, and changing its source
//	JudgeClusterCatalog     creating a ClusterCatalog of OLM v1, and changing its image or priority
//	JudgeOperatorPolicy     creating and updating an OperatorPolicy
//	JudgeConstraint         creating and updating a Constraint
//	dependency.JudgePolicy  creating and updating a Policy; JudgePolicySet a PolicySet
//
// Package bundle judges what a plan or a ClusterServiceVersion brings, dependency Policies and PolicySets. What rules
// judge by is in packages below, which have no rule: carrier extracts bundles from what brings them, facts has what is
// known of the cluster, state of a namespace and its policies, and evidence what a plan states of overrides and
// consents.
//
// The code behind a refusal is found by the ID in its message: the list of its kind, in reading order, is the only place
// of the product that spells it. An element has the rule's outcomes and summary, and the function that judges by it; the
// entry point of the kind runs all of them. A rule without a function is judged where its constant is used. A new rule
// is a new element of a list and a function. What a rule and a verdict are is in package verdict.
package rules
