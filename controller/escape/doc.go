// Package escape detects ClusterServiceVersions that OLM wrote while no replica of Opgate answered, and that admission
// would have refused. Their webhook has failurePolicy Ignore, since OLM fails a plan permanently when one of its steps
// fails for a minute.
//
// The start of an outage is known from the Lease of the background loop, which the leader renews every two seconds and
// which only Opgate may write. What was created between the last renewal by another process and shortly after the start
// of this one is judged once, by the rules of admission (rules.JudgeEscape). Refused ones are recorded in an annotation
// of the Lease, so that they are still handled after another restart.
package escape
