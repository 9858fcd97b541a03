// Package templates completes OperatorPolicies that depend on the cluster, on every replica, so that
// admission and the background loop judge by the same values: template text ({{ ... }}) in spec.versions,
// spec.versionRange, spec.subscription and spec.operatorGroup, and a missing spec.subscription.namespace.
//
// A part is resolved completely or not at all: what cannot be resolved stays as it was written and is a Problem, and
// a policy with problems holds what it governs. A template that resolves to an empty value where that would mean
// "any" (no version, no range, no catalog, no channel) is a problem too.
//
// Templates are those of github.com/stolostron/go-template-utils, which the OperatorPolicy controller of Open
// Management uses, without the functions whose results differ between replicas (random values, the
// time, generated keys, DNS) and without define, block and template. Objects that a template looks up are
// watched, and a change of one resolves the policy again.
//
// # Permissions
//
// Lookups are made as ServiceAccount opgate-lookups of Opgate's namespace, never with Opgate's own permissions: their
// results appear in the policy's status and in refusals. That account has no permission until an administrator grants
// it, as list and watch of the resource; get alone is not enough, and a rule with resourceNames suffices for lookups by
// name. Whatever is granted, Secrets and Opgate's own namespace cannot be looked up. A forbidden lookup is a problem
// that names the request, and is retried with exponential backoff up to 5 minutes.
//
// # Limits
//
// A policy's template text, loops, output, time and the size of its lookups are bounded, and so are the bytes that its
// functions make: the calls in a template are rewritten so that what each takes and makes is counted (count.go), and
// functions that make much of little refuse before they do (functions.go).
package templates
