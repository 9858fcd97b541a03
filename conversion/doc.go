// Package conversion serves OperatorPolicy in two versions. v1beta2 is the hub, in which policies are stored
// and judged; v1beta1 is a spoke with two dialects, the older one (installPlanApproval in the
// subscription) and the current one (upgradeApproval).
//
// Converters are pure and total: they work on the JSON of an object, change the few fields that differ and
// leave everything else, unknown fields included, as it is. A misspelt field has to reach admission, which
// refuses it; a converter that dropped it would store a policy that allows everything.
//
// What one version cannot express is kept in one annotation, absent if there is nothing to keep: on v1beta1
// objects the values of v1beta2, on v1beta2 objects the dialect in which the policy was written.
package conversion
