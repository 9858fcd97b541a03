// Package state has what is known of a namespace and its policies: Namespace, with its objects, what is recorded of
// what was installed, and what was read for its plans; OperatorPolicy, decoded and prepared for judging. It answers
// what rules in several packages ask, and records what they find. It has no rule, and no ID of one. What is known of
// the cluster is in package facts, below the engine of Constraints, which reads it too.
package state
