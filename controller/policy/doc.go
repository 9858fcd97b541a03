// Package policy reconciles Policies and PolicySets: it creates the objects of their templates when their dependencies
// are met, deletes or suspends them when the dependencies are not met any more, and writes the status of both.
//
// It is driven by events alone. The observed state comes from the snapshot and from the watches of package watches;
// package rules/dependency decides what to do.
package policy
