// Package constraint judges bundles by the cluster's constraints (the Constraint objects of
// constraints.operators.coreos.com) and by the olm.constraint properties that bundles bring themselves.
// Like the rest of rules it is pure: facts go in as values, findings come out, and nothing is asked of
// anybody.
//
// Two questions are kept apart. A cluster constraint must be satisfied by every incoming bundle:
// Set.Judge. A bundle's own constraint must be satisfied by some bundle, itself included, or by the
// cluster: Set.Own, which follows OLM's resolver.
//
// Rules are CEL, written by people who may be careless or worse. Define compiles them, estimates what
// they can cost and refuses what could keep a request waiting; nothing is compiled while judging.
package constraint
