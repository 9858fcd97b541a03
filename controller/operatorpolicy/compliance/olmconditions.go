package compliance

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// The conditions of Subscriptions that the status of a policy repeats. They inform: compliance follows from
// the conditions on the same subjects. CatalogSourcesUnhealthy is not repeated: the policy has its own condition of
// that name, on its own catalog and on those that keep OLM from resolving.
const (
	TypeInstallPlanMissing = "InstallPlanMissing"
	TypeInstallPlanPending = "InstallPlanPending"
	TypeInstallPlanFailed  = "InstallPlanFailed"
	TypeBundleUnpacking    = "BundleUnpacking"
	TypeBundleUnpackFailed = "BundleUnpackFailed"
	TypeResolutionFailed   = "ResolutionFailed"
)

var repeatedTypes = []string{TypeInstallPlanMissing, TypeInstallPlanPending, TypeInstallPlanFailed,
	TypeBundleUnpacking, TypeBundleUnpackFailed, TypeResolutionFailed}

// reasonNotYetReconciled is OLM's reason for a plan without a phase.
const reasonNotYetReconciled = "InstallPlanNotYetReconciled"

// since returns when a condition changed, zero if that is not known.
func since(c *olm.SubscriptionCondition) metav1.Time {
	at, _ := time.Parse(time.RFC3339, c.LastTransitionTime)
	return metav1.NewTime(at)
}

// subscriptionConditions repeats the conditions of the Subscription that still apply.
func (e *evaluation) subscriptionConditions() []Condition {
	if e.subscription == nil {
		return nil
	}
	var conditions []Condition
	for _, conditionType := range repeatedTypes {
		c := e.subscription.Condition(conditionType)
		if c == nil || !e.applies(c) {
			continue
		}
		message := text.Truncate(c.Message, foreignText)
		if strings.EqualFold(c.Reason, reasonUnsatisfiable) {
			message = e.resolverText(c.Message)
		}
		message = cmp.Or(message, e.explained(conditionType))
		conditions = append(conditions, Condition{Type: conditionType, Status: metav1.ConditionTrue,
			Reason:  reasonOr(c.Reason, conditionType),
			Message: message, Since: since(c)})
	}
	return conditions
}

// applies reports whether a condition holds now. OLM removes most conditions late, and sets no time for those on
// unpacking and resolution (setSubsCond in operator-lifecycle-manager pkg/controller/operators/catalog/operator.go), so
// they are compared with the observed state.
func (e *evaluation) applies(c *olm.SubscriptionCondition) bool {
	sub := e.subscription
	plan := e.referred()
	switch c.Type {
	case TypeInstallPlanMissing:
		return sub.Status.InstallPlan.Name != "" && plan == nil
	case TypeInstallPlanPending: // its reason is the phase
		return plan != nil && (c.Reason == plan.Status.Phase || c.Reason == reasonNotYetReconciled &&
			plan.Status.Phase == "") &&
			(c.Reason != olm.PhaseRequiresApproval || !plan.Spec.Approved)
	case TypeInstallPlanFailed:
		return plan != nil && plan.Status.Phase == olm.PhaseFailed
	case TypeBundleUnpacking, TypeBundleUnpackFailed:
		// OLM resolves no further for a Subscription with a pending plan, and restores both conditions after it has
		// written that plan.
		return (plan == nil || sub.Status.State != olm.StateUpgradePending) &&
			(c.Type == TypeBundleUnpackFailed || sub.Condition(TypeBundleUnpackFailed) == nil)
	default:
		return e.unresolved() != nil
	}
}

// referred returns the plan that the Subscription refers to, nil if it does not exist.
func (e *evaluation) referred() *olm.InstallPlan {
	plans := e.Namespace.Plans()
	i := slices.IndexFunc(plans, func(p *olm.InstallPlan) bool {
		return e.subscription.Status.InstallPlan.Name != "" && p.Metadata.Name == e.subscription.Status.InstallPlan.Name
	})
	if i < 0 {
		return nil
	}
	return plans[i]
}

// explained returns a message for a condition that OLM sets without one.
func (e *evaluation) explained(conditionType string) string {
	sub := e.subscription
	plan := e.referred()
	switch {
	case plan == nil && sub.Status.InstallPlan.Name != "":
		return "the InstallPlan " + text.Name(sub.Metadata.Namespace+"/"+sub.Status.InstallPlan.Name) +
			", which the Subscription " + named(&sub.Metadata) + " refers to, does not exist"
	case plan == nil || conditionType == TypeBundleUnpacking || conditionType == TypeBundleUnpackFailed ||
		conditionType == TypeResolutionFailed:
		return "OLM sets this condition of the Subscription " + named(&sub.Metadata) + " without a message"
	case plan.Status.Phase == olm.PhaseRequiresApproval:
		return "the InstallPlan " + planName(plan) + " awaits approval"
	}
	return "the InstallPlan " + planName(plan) + " is in phase " + cmp.Or(text.Truncate(plan.Status.Phase, 100), "none")
}

// resolverLength is the maximum length, in bytes, of a quoted message of OLM's resolver.
const resolverLength = 16 << 10

// resolverText returns a message of OLM's resolver, which lists the constraints in a different order each time. One
// that differs from the reported message in the order only is no change, and returns that.
func (e *evaluation) resolverText(message string) string {
	parts := func(message string) []string {
		return slices.Sorted(strings.SplitSeq(strings.Replace(message, ": ", ", ", 1), ", "))
	}
	if len(message) > resolverLength {
		message = strings.Join(parts(message), ", ") // a part in any order could not be compared
	}
	message = text.Truncate(message, resolverLength)
	if before := meta.FindStatusCondition(e.Policy.Status.Conditions, TypeResolutionFailed); before != nil &&
		slices.Equal(parts(before.Message), parts(message)) {
		return before.Message
	}
	return message
}
