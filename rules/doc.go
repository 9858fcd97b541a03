// Package rules holds every decision that Opgate takes. It is pure: no client, no HTTP, no clock, no
// logger and no error return. A caller gathers what it knows into an input struct and gets a Verdict;
// what could not be read is an input state that denies or holds, never one that allows.
//
// There is one entry for each kind: JudgeSubscription, JudgePlan (may this plan be approved?) with the
// write rules JudgePlanCreate, JudgePlanUpdate and JudgePlanStatusUpdate around it, and JudgeOperatorPolicy.
// Admission, the background loop and `opgate check` all call these, with the same inputs, so that the
// three can never disagree.
package rules
