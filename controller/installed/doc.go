// Package installed keeps the record of what OLM has installed in each namespace under a policy or a Constraint: one
// ConfigMap for each namespace, in Opgate's own. Package rules decides what is recorded, and every replica judges by
// the record; the leader writes it.
package installed
