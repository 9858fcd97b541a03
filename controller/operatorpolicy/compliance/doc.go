// Package compliance evaluates an OperatorPolicy: its conditions and the writes that it requires.
//
// It is pure, like package rules, which it builds on: its input is one Input with the observed state, its
// result an Outcome with a condition for each condition type and the writes of an enforced policy.
// Package operatorpolicy gathers the Input and carries out the writes.
package compliance
