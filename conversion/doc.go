// Package conversion serves OperatorPolicy in two versions. v1beta2 is the hub, in which policies are stored
// and judged; v1beta1 is a spoke with two dialects, the one of the first design (installPlanApproval on the
// subscription) and the present one (upgradeApproval).
//
// Converters are pure and total: they work on the JSON of an object, change the few fields that differ and
// leave everything else, unknown fields included, as it is. A misspelt field has to reach admission, which
// refuses it; a converter that dropped it would store a policy that allows everything.
//
// What one version cannot say travels in one annotation, absent when there is nothing of the kind: on
// v1beta1 objects the values of v1beta2, on v1beta2 objects the dialect that the policy was written in.
package conversion
