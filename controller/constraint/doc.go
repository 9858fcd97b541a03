// Package constraint is the part of the background loop that looks after Constraints: it keeps the virtual operators,
// by which cluster properties reach OLM's resolver, makes Subscriptions wait that were there before a Constraint, and
// writes the status of Constraints.
//
// It is driven by events alone. What is observed comes from the snapshot that admission judges by; what is to be done is decided by packages rules and virtual.
package constraint
