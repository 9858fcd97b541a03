// Package policy is the part of the background loop that looks after Policies and PolicySets: it makes the objects
// of their templates once what they depend on is as it should be, takes them away or suspends them when that is lost,
// and writes the status of both.
//
// It is driven by events alone. What is observed comes from the snapshot and from the watches of package watches; what is to be done is decided by package rules/dependency.
package policy
