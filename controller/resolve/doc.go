// Package resolve completes OperatorPolicies whose meaning depends on the cluster, on every replica, so that
// admission and the background loop judge by the same values: template text ({{ ... }}) in spec.versions,
// spec.versionRange, spec.subscription and spec.operatorGroup, and a missing spec.subscription.namespace.
//
// Nothing is ever completed halfway: what cannot be resolved stays as it was written and is a Problem, and
// a policy with problems holds what it governs. A template that resolves to nothing where nothing would mean
// "any" (no version, no range, no catalog, no channel) is a problem too.
//
// Templates are those of github.com/stolostron/go-template-utils, which the OperatorPolicy controller of Open
// Cluster Management uses, without the functions whose answers differ between replicas (random values, the
// time, generated keys, DNS) and without define, block and template. Objects that a template looks up are
// watched, and a change of one resolves the policy again.
//
// # Rights
//
// Lookups are made with Opgate's own rights, for whoever may write a policy, and what they find appears in the
// policy's status and in refusals. So Opgate has no right to look up anything until an administrator
// grants it, as list and watch of the resource; get alone is of no use, and a rule with resourceNames
// is enough for lookups by name. Secrets are not special here: grant them, if at all, one by one. A lookup that
// is forbidden is a problem that names what was asked for, and is tried again ever more slowly up to 5 minutes.
//
// # Limits
//
// A policy's template text, loops, output, time and the size of what is looked up are bounded. The memory that
// single template functions take is not (doubling a string forty times is a short template): whoever writes
// policies is trusted with the process, as docs/threats.md says.
package resolve
