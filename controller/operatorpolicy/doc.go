// Package operatorpolicy is the background loop: it approves the InstallPlans that the rules allow, carries
// out what enforced OperatorPolicies ask for, and writes their status.
//
// It is driven by events alone and works on one namespace at a time, since that is what OLM resolves as a
// whole: one reconcile approves the namespace's plans and evaluates all its policies. What is observed comes
// from the snapshot that admission judges by (policies, plans) and from a cache of watches (the rest); what
// is to be done is decided by packages rules and compliance.
package operatorpolicy
