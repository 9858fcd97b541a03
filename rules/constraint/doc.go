// Package constraint judges bundles by the cluster's constraints (the Constraint objects of
// constraints.operators.coreos.com) and by the olm.constraint properties that bundles bring themselves. Like the rest
// of rules it is pure: it takes values, returns findings and makes no calls.
//
// There are two questions. A cluster constraint must be satisfied by every incoming bundle: Set.Judge. A bundle's own
// constraint must be satisfied by some bundle, itself included, or by the cluster: Set.Own, which follows OLM's
// resolver.
//
// Rules are CEL by possibly careless or hostile authors. Define compiles them and refuses those whose estimated cost is
// too high; judging counts what they cost on each bundle. Nothing is compiled while judging.
package constraint
