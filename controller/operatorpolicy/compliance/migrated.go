package compliance

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
)

const (
	reasonMigrated     = "MigratedToOLMv1"
	reasonMigrating    = "MigrationInProgress"
	reasonManagedTwice = "ManagedByBothOLMs"
	// reasonRemoved is that of a missing Subscription that is not created again yet.
	reasonRemoved = "SubscriptionRemoved"
)

// migrationGrace is how long a Subscription that existed is not created again where OLM v1 is installed: its migration
// tool deletes the Subscription first, and creates what shows the migration afterwards. A rollback deletes that first,
// and creates the Subscription afterwards.
const migrationGrace = 30 * time.Second

// migrated returns what shows that OLM v1 manages the operator in place of a Subscription, or is about to; nil if
// nothing does. A ClusterExtension counts before a ClusterObjectSet: the tool creates it last.
func (e *evaluation) migrated() *olm.Migrated {
	if len(e.Migrated) == 0 {
		return nil
	}
	return e.Migrated[0] // they are sorted by kind
}

// inOLMv1 is the condition on a Subscription that is missing since OLM v1 manages the operator: the policy creates none,
// since both OLMs would then write the same objects. It is Compliant with a version that the policy wants.
func (e *evaluation) inOLMv1(m *olm.Migrated) Condition {
	by := m.Kind + " " + text.Name(m.Name)
	related := e.related(m.Kind, olm.ObjectMeta{Name: m.Name, UID: m.UID}, policyv1beta2.NonCompliant,
		relatedUnknownState)
	with := func(status metav1.ConditionStatus, reason, message string) Condition {
		f := condition(TypeSubscription, status, reason, message, related)
		f.Message += "; no Subscription is created while it exists"
		return f
	}
	if m.Kind == olm.KindClusterObjectSet {
		return with(metav1.ConditionFalse, reasonMigrating,
			"the operator is being migrated to OLM v1: "+by+
				" has taken over its objects, and there is no ClusterExtension for it")
	}
	message := "the operator is managed by OLM v1, by " + by
	if m.From != "" {
		message = "the operator was migrated to OLM v1, and is managed by " + by
	}
	if m.Bundle == "" {
		return with(metav1.ConditionFalse, reasonMigrated, message+", which has installed no version yet")
	}
	covered, accepted := bundle.Covers(e.Rules, m.Bundle, m.Version, e.Now)
	message += ", which has installed " + text.Name(m.Bundle)
	if !covered {
		related.Reason = relatedMismatch
		return with(metav1.ConditionFalse, reasonMigrated, message+", which the policy does not allow: "+accepted)
	}
	related.Compliant, related.Reason = policyv1beta2.Compliant, relatedFound
	return with(metav1.ConditionTrue, reasonMigrated, message)
}

// handedOver is the outcome for an operator without a Subscription that OLM v1 manages. Nothing of OLM is written or
// missed. Its own installation, if a ClusterServiceVersion is left of it, is reported as that of any policy.
func (e *evaluation) handedOver(m *olm.Migrated) Outcome {
	subscription := e.inOLMv1(m)
	elsewhere := func(conditionType, reason string) Condition {
		return condition(conditionType, statusIf(conditionType != TypeCatalogSourcesUnhealthy), subscription.Reason,
			"the operator is managed by OLM v1", e.nothing(kindOf[conditionType], reason)...)
	}
	out := Outcome{InstalledVersion: e.installedVersion()}
	csv := elsewhere(TypeClusterServiceVersion, relatedNoCSV)
	if e.csv != nil {
		csv = e.describeCSV(e.csv)
	}
	group := elsewhere(TypeOperatorGroup, "")
	catalog := elsewhere(TypeCatalogSourcesUnhealthy, "")
	group.Related, catalog.Related = e.groupsCreated().Related, nil
	out.Conditions = []Condition{
		validated(),
		group,
		subscription,
		e.installPlan(),
		csv,
		e.crds(),
		elsewhere(TypeDeployment, relatedNoDeployments),
		catalog,
	}
	out.Conditions = append(out.Conditions, e.deprecations()...)
	out.Conditions = append(out.Conditions, skipped("the operator is managed by OLM v1"))
	return out
}

// besidesOLMv1 adds to the condition on a Subscription that OLM v1 manages the same operator.
func (e *evaluation) besidesOLMv1(f Condition) Condition {
	m := e.migrated()
	if m == nil || e.subscription == nil {
		return f
	}
	f.Status, f.Reason = metav1.ConditionFalse, reasonManagedTwice
	f.Message += "; " + m.Kind + " " + text.Name(m.Name) +
		" of OLM v1 manages the same operator: delete that, or the Subscription"
	f.Related = append(slices.Clone(f.Related), e.related(m.Kind, olm.ObjectMeta{Name: m.Name, UID: m.UID},
		policyv1beta2.NonCompliant, relatedMismatch))
	return f
}

// removedSince returns since when a Subscription that existed is missing, where OLM v1 is installed; zero if it is to
// be created now.
func (e *evaluation) removedSince() time.Time {
	if !e.OLMv1 {
		return time.Time{}
	}
	previous := &e.Policy.Status
	before, since := meta.FindStatusCondition(previous.Conditions, TypeSubscription), e.Now
	existed := slices.ContainsFunc(previous.RelatedObjects, func(r policyv1beta2.RelatedObject) bool {
		return r.Object.Kind == kindSubscription && r.Object.Metadata.Namespace == e.wanted.namespace &&
			r.Properties != nil && (r.Properties.UID != "" || r.Properties.CreatedByPolicy != nil)
	})
	if before != nil {
		switch before.Reason {
		case reasonRemoved:
			existed, since = true, before.LastTransitionTime.Time
		case reasonMigrated, reasonMigrating:
			existed = true
		}
	}
	if !existed || e.Now.Sub(since) >= migrationGrace {
		return time.Time{}
	}
	return since
}

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
