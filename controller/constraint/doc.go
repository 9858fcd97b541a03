// Package constraint reconciles Constraints: it maintains the virtual operators, which pass cluster properties to OLM's
// resolver, makes Subscriptions that are older than a Constraint require approval, and writes the status of
// Constraints.
//
// It is driven by events alone. The observed state is the snapshot that admission judges by; packages rules and virtual
// decide what to do.
package constraint
