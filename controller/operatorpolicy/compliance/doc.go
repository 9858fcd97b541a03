// Package compliance decides what an OperatorPolicy finds on its cluster and what is to be done about it.
//
// It is pure, like package rules, on which it stands: everything that was observed goes in as one Input,
// and an Outcome comes out with a finding for each condition type and the writes that an enforced policy
// asks for. Package operatorpolicy gathers the one and carries out the other.
package compliance
