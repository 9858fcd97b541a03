// Package state has what is known of a namespace: Namespace, with its policies and objects, what is recorded of what was
// installed, and what was read for its plans. It answers what rules in several packages ask, and records what they find. It has no rule, and no ID of one. What is known of
// the cluster is in package facts, below the engine of Constraints, which reads it too.
package state
