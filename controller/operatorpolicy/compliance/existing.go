package compliance

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/state"
)

// existingInstallation returns the copy of a ClusterServiceVersion, or the original without one, that shows that the
// operator, installed for all namespaces in another one, serves this namespace too; nil if there is none, or if the
// policy requires an installation for certain namespaces. A second installation would break both. An operator that is
// installed in this namespace takes precedence.
//
// Its catalog and version are those of the original: an operator from a catalog that the policy does not name does not
// count, and neither does, if the policy has a Subscription of its own, a version that it does not allow.
// Otherwise a user who may install operators in one namespace decides for all others.
func (e *evaluation) existingInstallation() *olm.CSV {
	if e.wanted.group.Targets() || e.csv != nil && e.csv.Status.Phase == phaseSucceeded {
		return nil
	}
	var existing *olm.CSV
	for _, c := range e.csvs() {
		if !e.served(c) || !e.Origins[c].comesFrom(e.Rules) || e.isOriginal(c) && e.csv != nil {
			// what is installed here would stay without its Subscription; OLM itself prevents that where a copy exists
			continue
		}
		origin := e.Origins[c].CSV
		covered, _ := bundle.Covers(e.Rules, c.Metadata.Name, origin.Bundle.Version, e.Now)
		if !covered && e.subscription != nil {
			continue
		}
		if existing == nil || covered {
			existing = new(*c) // the snapshot's own is shared
			existing.Status.Phase, existing.Bundle.Version = origin.Status.Phase, origin.Bundle.Version
		}
	}
	return existing
}

// isOriginal reports whether this is an original in another namespace, of which this one has no copy.
func (e *evaluation) isOriginal(c *olm.CSV) bool { return c.Metadata.Namespace != e.Namespace.Name() }

// besides names the operators of the package that serve this namespace from another one, for a policy with an
// installation of its own.
func (e *evaluation) besides() string {
	message := ""
	for _, c := range e.csvs() {
		if e.served(c) {
			message += "; " + text.Name(c.Metadata.Name) + ", installed in namespace " + text.Name(e.from(c)) +
				", serves this namespace as well: remove one of them"
		}
	}
	return message
}

// served reports whether a ClusterServiceVersion is of the package, and installed elsewhere for this namespace as well.
func (e *evaluation) served(c *olm.CSV) bool {
	return e.Origins[c].serves(e.wanted.namespace) && e.Origins[c].provides(e.wanted.name)
}

// elsewhere describes the copies of the package that do not count, for a policy without an installation of its own.
func (e *evaluation) elsewhere() string {
	message := ""
	for _, c := range e.csvs() {
		from := e.from(c)
		if from == "" {
			continue
		}
		if e.served(c) && !e.Origins[c].comesFrom(e.Rules) {
			message += "; " + text.Name(c.Metadata.Name) +
				" is installed elsewhere, from another catalog: it runs in namespace " + text.Name(from) +
				" and is available here, but nothing shows that it comes from " + e.catalogAsked()
		}
		if e.subscription != nil && e.subscription.Follows(c.Metadata.Name) && !e.isOriginal(c) {
			message += "; OLM cannot install " + text.Name(c.Metadata.Name) +
				" here while the copy of that name from namespace " + text.Name(from) + " is in its place"
		}
	}
	return message
}

// existing returns the outcome for an operator that is installed elsewhere and available here.
func (e *evaluation) existing(csv *olm.CSV) Outcome {
	from := e.from(csv)
	e.upgrade = e.upgrading(csv)
	out := Outcome{InstalledVersion: csv.Metadata.Name}
	message := "the operator is installed in namespace " + text.Name(from) +
		" and available here through its AllNamespaces mode"
	available := func(conditionType string, related []policyv1beta2.RelatedObject) Condition {
		return condition(conditionType, statusIf(conditionType != TypeCatalogSourcesUnhealthy), reasonExisting, message,
			related...)
	}
	var groups, subscriptions []policyv1beta2.RelatedObject
	for _, g := range e.Namespace.Groups() {
		groups = append(groups, e.related(kindOperatorGroup, g.Metadata, policyv1beta2.Compliant, relatedFound))
	}
	for _, s := range e.Namespace.Subscriptions() {
		if s.Spec.Package == e.wanted.name {
			subscriptions = append(subscriptions, e.related(kindSubscription, s.Metadata, policyv1beta2.Compliant,
				relatedFound))
		}
	}
	subscription := available(TypeSubscription, subscriptions)
	left := slices.ContainsFunc(e.leftBehind(), func(s *olm.Subscription) bool {
		return s.Metadata.Namespace == from && s.Spec.Package == e.wanted.name
	})
	if left { // the policy would be Compliant through what it is not for any more
		subscription.Status, subscription.Reason = metav1.ConditionFalse, reasonLeftBehind
	}
	out.Conditions = []Condition{
		validated(),
		available(TypeOperatorGroup, groups),
		subscription,
		available(TypeInstallPlan, []policyv1beta2.RelatedObject{e.related(kindInstallPlan,
			olm.ObjectMeta{Namespace: e.wanted.namespace, Name: noName}, policyv1beta2.Compliant, relatedNoPlans)}),
		e.describeCSV(csv),
		available(TypeCustomResourceDefinition,
			e.nothing(kindCustomResourceDefinition, relatedNoCRDs)),
		available(TypeDeployment, e.nothing(kindDeployment, relatedNoDeployments)),
		available(TypeCatalogSourcesUnhealthy, nil),
	}
	out.Conditions = append(out.Conditions, e.deprecations()...)
	out.Conditions = append(out.Conditions, e.minorChannel())
	if covered, _ := bundle.Covers(e.Rules, csv.Metadata.Name, csv.Bundle.Version, e.Now); covered && e.enforced && !left {
		out.Actions = e.withdraw(message)
	}
	return out
}

// withdraw removes what this policy created for its own installation: its Subscription and, if no other
// Subscription exists in the namespace, the OperatorGroup that it generated. Objects of others are retained.
func (e *evaluation) withdraw(message string) []Action {
	var actions []Action
	remaining := 0
	remove := func(conditionType string, o *olm.ObjectMeta) {
		kind := kindOf[conditionType]
		f := condition(conditionType, metav1.ConditionFalse, kind+"Present",
			"the "+kind+" "+named(o)+" is not needed, since "+message,
			e.related(kind, *o, policyv1beta2.NonCompliant, relatedNotWanted))
		done := condition(conditionType, metav1.ConditionTrue, reasonExisting, message,
			e.related(kind, olm.ObjectMeta{Namespace: o.Namespace, Name: o.Name}, policyv1beta2.Compliant,
				relatedDeleted))
		actions = append(actions, Action{Live: o.Reference(kinds[kind]), Done: done,
			Failed: f.because("deleted")})
	}
	for _, s := range e.Namespace.Subscriptions() {
		if s.Spec.Package != e.wanted.name || s.Metadata.Annotations.ManagedBy != e.managedBy() ||
			s.Metadata.DeletionTimestamp != "" {
			remaining++
			continue
		}
		remove(TypeSubscription, &s.Metadata)
	}
	if remaining > 0 {
		return actions
	}
	if i := slices.IndexFunc(e.Namespace.Groups(), e.generated); i >= 0 {
		remove(TypeOperatorGroup, &e.Namespace.Groups()[i].Metadata)
	}
	return actions
}

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
	return PlanNamed(e.Namespace, e.subscription.Status.InstallPlan.Name)
}

// PlanNamed returns a plan of a namespace, nil if it is not known.
func PlanNamed(ns *state.Namespace, name string) *olm.InstallPlan {
	i := slices.IndexFunc(ns.Plans(), func(p *olm.InstallPlan) bool { return p.Metadata.Name == name })
	if i < 0 {
		return nil
	}
	return ns.Plans()[i]
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
