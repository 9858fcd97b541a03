package compliance

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
)

// mayhave evaluates a valid policy that allows an operator and installs nothing: objects that others created are
// compared and reported, and their absence is Compliant. It writes nothing but the reference that OLM has lost.
func (e *evaluation) mayhave() Outcome {
	if existing := e.existingInstallation(); existing != nil {
		out := e.existing(existing)
		out.Actions = nil
		return out
	}
	if m := e.migrated(); m != nil && e.subscription == nil && len(e.duplicates) == 0 {
		return e.handedOver(m)
	}
	out := Outcome{InstalledVersion: e.installedVersion()}
	subscription := e.allowedSubscription()
	out.Actions = e.relink(&out, &subscription)
	out.Conditions = []Condition{
		validated(),
		e.groupsCreated(),
		subscription,
		e.installPlan(),
		e.allowedCSV(),
		e.crds(),
		e.deployments(),
	}
	if e.subscription == nil {
		out.Conditions = append(out.Conditions, condition(TypeCatalogSourcesUnhealthy, metav1.ConditionFalse,
			"CatalogSourceNotApplicable", "the CatalogSource is not checked, since there is no Subscription"),
			skipped("there is no Subscription"))
		return out
	}
	out.Conditions = slices.Concat(out.Conditions, []Condition{e.catalogSource()}, e.deprecations(),
		[]Condition{e.minorChannel()}, e.subscriptionConditions())
	return out
}

// groupsCreated is the condition on OperatorGroups, which do not count. It lists those that the policy created before: as
// mustnothave it would remove them, and the status is the only record of those of earlier releases.
func (e *evaluation) groupsCreated() Condition {
	f := condition(TypeOperatorGroup, metav1.ConditionTrue, "OperatorGroupNotApplicable",
		"a mayhave policy does not check OperatorGroups")
	for _, group := range e.Namespace.Groups() {
		if g := &group.Metadata; e.createdByPolicy(kindOperatorGroup, g) {
			f.Related = append(f.Related, e.related(kindOperatorGroup, *g, policyv1beta2.Compliant, relatedFound))
		}
	}
	return f
}

// allowedSubscription compares the Subscription with the fields by which the policy refuses Subscriptions. Whether OLM
// resolves it is its owner's concern, and no violation: OLM may report a failure for long after an upgrade, and the
// policy repairs nothing.
func (e *evaluation) allowedSubscription() Condition {
	sub := e.subscription
	switch {
	case len(e.duplicates) > 0:
		return e.rivalry()
	case sub == nil:
		return condition(TypeSubscription, metav1.ConditionTrue, "SubscriptionNotPresent",
			"there is no Subscription to "+e.wanted.name+" in namespace "+
				e.wanted.namespace+", and the policy requires none",
			e.related(kindSubscription, olm.ObjectMeta{Namespace: e.wanted.namespace, Name: e.wanted.name},
				policyv1beta2.Compliant, relatedAbsent))
	}
	judged := map[string]any{}
	for _, field := range []string{"channel", "source", "sourceNamespace", "config"} {
		if value, ok := e.wanted.subscription[field]; ok {
			judged[field] = value
		}
	}
	if different := differences(e.stored(), judged, "spec"); len(different) > 0 {
		return condition(TypeSubscription, metav1.ConditionFalse, "SubscriptionMismatch",
			"the Subscription "+named(&sub.Metadata)+" is not one that the policy allows: "+differing(different),
			e.related(kindSubscription, sub.Metadata, policyv1beta2.NonCompliant, relatedMismatch))
	}
	message := "the Subscription " + named(&sub.Metadata) + " is one that the policy allows"
	if c := e.subscription.Condition(TypeResolutionFailed); c != nil && e.mentioned(c.Message) && !e.failureOutdated() {
		message += "; OLM does not resolve it (" + reasonOr(c.Reason, TypeResolutionFailed) +
			"), as its condition ResolutionFailed explains"
	}
	return condition(TypeSubscription, metav1.ConditionTrue, "SubscriptionMatches", message,
		e.related(kindSubscription, sub.Metadata, policyv1beta2.Compliant, relatedFound))
}

// allowedCSV reports whether the installed version is allowed and healthy. None need be installed.
func (e *evaluation) allowedCSV() Condition {
	if e.csv != nil {
		f := e.describeCSV(e.csv)
		f.Message += e.besides()
		return f
	}
	return condition(TypeClusterServiceVersion, metav1.ConditionTrue, "ClusterServiceVersionNotPresent",
		"no ClusterServiceVersion of "+e.wanted.name+" is installed in namespace "+
			e.wanted.namespace+", and the policy requires none",
		e.nothing(kindClusterServiceVersion, relatedNoCSV)...)
}
