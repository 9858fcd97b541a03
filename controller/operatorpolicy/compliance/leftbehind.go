package compliance

import (
	"slices"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
)

const (
	reasonLeftBehind  = "SubscriptionLeftBehind"
	relatedLeftBehind = "Resource is managed by a policy that no longer names it"
)

// leftBehind returns the Subscriptions that the policy still manages although it does not name their namespace or
// package any more.
func (in *Input) leftBehind() []*olm.Subscription {
	sub := &in.Policy.Spec.Subscription
	return filter(in.Before, func(s *olm.Subscription) bool {
		return s.Metadata.Annotations.ManagedBy == in.managedBy() &&
			(s.Metadata.Namespace != sub.Namespace || s.Spec.Package != sub.Name)
	})
}

// withLeftBehind returns the conditions with what the policy has left behind: the next evaluation knows it from the
// related objects.
func (in *Input) withLeftBehind(conditions []Condition) []Condition {
	conditions = slices.Clone(conditions)
	i := slices.IndexFunc(conditions, func(f Condition) bool { return f.Type == TypeSubscription })
	if i < 0 || conditions[i].KeepRelated {
		return conditions // related objects are kept, these included
	}
	f := &conditions[i]
	f.Related = slices.Clone(f.Related)
	for _, s := range in.leftBehind() {
		f.Message += "; the Subscription " + named(&s.Metadata) +
			", which the policy managed before it was changed, is left behind: " +
			"delete it and its ClusterServiceVersion, or remove them with a mustnothave policy"
		f.Related = append(f.Related, in.related(kindSubscription, s.Metadata, policyv1beta2.Inapplicable,
			relatedLeftBehind))
	}
	return conditions
}
