package snapshot

import (
	"unique"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// share returns a copy of a status without spare capacity, of which the texts that recur are stored once for all
// policies. A decoded status is the larger part of a policy.
func share(status *policyv1beta2.OperatorPolicyStatus) policyv1beta2.OperatorPolicyStatus {
	shared := status.DeepCopy() // slices that are decoded grow by more than they need
	for i := range shared.Conditions {
		c := &shared.Conditions[i]
		c.Type, c.Status, c.Reason, c.Message = once(c.Type), once(c.Status), once(c.Reason), once(c.Message)
	}
	for i := range shared.RelatedObjects {
		o := &shared.RelatedObjects[i]
		o.Compliant, o.Reason, o.Cluster = once(o.Compliant), once(o.Reason), once(o.Cluster)
		o.Object.APIVersion, o.Object.Kind = once(o.Object.APIVersion), once(o.Object.Kind)
		o.Object.Metadata.Name, o.Object.Metadata.Namespace = once(o.Object.Metadata.Name),
			once(o.Object.Metadata.Namespace)
	}
	for i := range shared.History {
		shared.History[i].Message = once(shared.History[i].Message)
	}
	return *shared
}

// once returns the text in memory that all equal texts share.
func once[T ~string](text T) T { return unique.Make(text).Value() }
