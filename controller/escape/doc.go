// Package escape finds ClusterServiceVersions that OLM wrote while no replica of Opgate answered, and that admission would have
// refused. Their webhook has failurePolicy Ignore, since OLM ends a plan for good when one of its steps fails for a minute.
//
// When an outage began is known from the Lease of the background loop, which the leader renews every two seconds and only Opgate may write.
// What was created between the last renewal by another process and shortly after the start of this one is judged once, by the
// rules of admission (rules.JudgeEscape). What is refused is recorded in an annotation of the Lease, so that a restart acts on it
// although its own outage was another one.
package escape
