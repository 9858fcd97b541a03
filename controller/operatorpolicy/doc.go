// Package operatorpolicy is the background loop: it approves the InstallPlans that the rules allow, carries
// out the actions of enforced OperatorPolicies, and writes their status.
//
// It is driven by events alone and reconciles one namespace at a time, since OLM resolves a namespace as a
// whole: one reconciliation approves the namespace's plans and evaluates all its policies. The observed state
// comes from the snapshot that admission judges by; packages rules and compliance decide what to do.
package operatorpolicy
