package compliance

import (
	"cmp"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/dependency"
)

// Condition types, which tools of the policy framework read. Source: the existing OperatorPolicy
// controller, whose types, reasons and related-object reasons are kept unchanged.
const (
	TypeValidPolicySpec              = "ValidPolicySpec"
	TypeOperatorGroup                = "OperatorGroupCompliant"
	TypeSubscription                 = "SubscriptionCompliant"
	TypeInstallPlan                  = "InstallPlanCompliant"
	TypeClusterServiceVersion        = "ClusterServiceVersionCompliant"
	TypeCustomResourceDefinition     = "CustomResourceDefinitionCompliant"
	TypeDeployment                   = "DeploymentCompliant"
	TypeCatalogSourcesUnhealthy      = "CatalogSourcesUnhealthy"
	TypeNoDeprecations               = "NoDeprecations"
	TypeMinorChannelUpgradeAvailable = "MinorChannelUpgradeAvailable"
	TypeCompliant                    = "Compliant"
	// TypeDependencies is an addition of Opgate: False while the dependencies of its Policy are not met, else absent.
	TypeDependencies = dependency.ConditionDependencies
)

// The kinds of related objects.
const (
	kindOperatorGroup            = olm.KindOperatorGroup
	kindSubscription             = olm.KindSubscription
	kindInstallPlan              = olm.KindInstallPlan
	kindClusterServiceVersion    = olm.KindClusterServiceVersion
	kindCustomResourceDefinition = "CustomResourceDefinition"
	kindDeployment               = "Deployment"
	kindCatalogSource            = olm.KindCatalogSource
)

// kinds are the kinds with their versions.
var kinds = map[string]schema.GroupVersionKind{
	kindOperatorGroup:            olm.OperatorGroupGVK,
	kindSubscription:             olm.SubscriptionGVK,
	kindInstallPlan:              olm.InstallPlanGVK,
	kindClusterServiceVersion:    olm.ClusterServiceVersionGVK,
	kindCustomResourceDefinition: apiextensionsv1.SchemeGroupVersion.WithKind(kindCustomResourceDefinition),
	kindDeployment:               appsv1.SchemeGroupVersion.WithKind(kindDeployment),
	kindCatalogSource:            olm.CatalogSourceGVK,
	olm.KindClusterExtension:     olm.ClusterExtensionGVK,
	olm.KindClusterObjectSet:     olm.ClusterObjectSetGVK,
}

// kindOf are the kinds of the related objects of a condition type; other types have none.
var kindOf = map[string]string{
	TypeOperatorGroup:            kindOperatorGroup,
	TypeSubscription:             kindSubscription,
	TypeInstallPlan:              kindInstallPlan,
	TypeClusterServiceVersion:    kindClusterServiceVersion,
	TypeCustomResourceDefinition: kindCustomResourceDefinition,
	TypeDeployment:               kindDeployment,
	TypeCatalogSourcesUnhealthy:  kindCatalogSource,
}

// The reasons of related objects.
const (
	relatedMissing        = "Resource not found but should exist"
	relatedNotWanted      = "Resource found but should not exist"
	relatedAbsent         = "Resource not found as expected"
	relatedFound          = "Resource found as expected"
	relatedMismatch       = "Resource found but does not match"
	relatedCreated        = "K8s creation success"
	relatedUpdated        = "K8s update success"
	relatedDeleted        = "K8s deletion success"
	relatedDeleting       = "The object is being deleted but has not been removed yet"
	relatedNotHandled     = "Resource found but will not be handled in mustnothave mode"
	relatedUnhealthy      = "Resource found as expected but is unhealthy"
	relatedUnknownState   = "Resource found but current state is unknown"
	relatedTooManyGroups  = "There is more than one OperatorGroup in this namespace"
	relatedNoPlans        = "There are no relevant InstallPlans in this namespace"
	relatedNoCSV          = "No relevant ClusterServiceVersion found"
	relatedNoCRDs         = "No relevant CustomResourceDefinitions found"
	relatedNoDeployments  = "No relevant deployments found"
	relatedDeploymentUp   = "Deployment Available"
	relatedDeploymentDown = "Deployment Unavailable"
	// notImpacted follows what is not healthy only because of Deployments that do not count.
	notImpacted = " (policy compliance is not impacted due to spec.complianceConfig.deploymentsUnavailable)"
)

// relatedKept is the reason of an object that removalBehavior retains.
func relatedKept(kind string) string {
	return "The " + kind + " is attached to a mustnothave policy, but does not need to be removed"
}

// noName is written in place of the name if no particular object is meant.
const noName = "-"

// related describes an object in the status. Name and namespace are enough if it does not exist.
func (in *Input) related(
	kind string, o olm.ObjectMeta, state policyv1beta2.ComplianceState, reason string,
) policyv1beta2.RelatedObject {
	r := policyv1beta2.RelatedObject{
		Object: policyv1beta2.ObjectReference{APIVersion: kinds[kind].GroupVersion().String(), Kind: kind,
			Metadata: policyv1beta2.ObjectMetadata{Name: o.Name, Namespace: o.Namespace}},
		Compliant: state, Reason: reason, Cluster: in.Cluster,
	}
	if o.UID != "" {
		r.Properties = &policyv1beta2.ObjectProperties{UID: o.UID}
		if in.createdByPolicy(kind, &o) {
			r.Properties.CreatedByPolicy = new(true)
		}
	}
	return r
}

// compliantIf returns Compliant or NonCompliant.
func compliantIf(ok bool) policyv1beta2.ComplianceState {
	if ok {
		return policyv1beta2.Compliant
	}
	return policyv1beta2.NonCompliant
}

// statusIf returns True or False.
func statusIf(ok bool) metav1.ConditionStatus {
	if ok {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// conditionMessageLength is the maximum length, in bytes, of the message of a condition in the schema.
const conditionMessageLength = 32768

// Finish returns the status of the policy after an evaluation, and the event to report, or nil. The conditions
// of the outcome are those after its actions. It is idempotent: for its own result it returns the
// same status and no event. The history has at most historyMost entries.
func Finish(in *Input, out Outcome, historyMost int) (policyv1beta2.OperatorPolicyStatus, *Event) {
	previous := &in.Policy.Status
	out.Conditions = in.withLeftBehind(out.Conditions)
	// Timestamps are stored in seconds; a higher precision would break later comparisons.
	now := metav1.NewTime(in.Now.Truncate(time.Second))
	conditions := nextConditions(previous.Conditions, out.Conditions, now)
	compliant, message := aggregate(&in.Policy.Spec, conditions)
	sum := metav1.Condition{Type: TypeCompliant, Status: statusIf(compliant == policyv1beta2.Compliant),
		Reason: string(compliant), Message: message}
	last := meta.FindStatusCondition(previous.Conditions, TypeCompliant)

	next := policyv1beta2.OperatorPolicyStatus{
		Compliant:                 compliant,
		ObservedGeneration:        in.Policy.Generation,
		Conditions:                append(conditions, transitioned(sum, last, now)),
		RelatedObjects:            nextRelated(previous.RelatedObjects, out.Conditions),
		ResolvedSubscriptionLabel: olm.Component(in.Rules.Package, in.Rules.TargetNamespace),
		OverlappingPolicies:       append([]string(nil), in.Overlaps...),
		History:                   nextHistory(previous.History, message, in.Now, historyMost),
		InstalledVersion:          out.InstalledVersion,
		Waiting:                   out.Waiting,
		EndedExceptions:           in.Rules.Exceptions().Ended(in.Now),
	}
	slices.SortFunc(next.Conditions, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
	if t := out.Intervention; t != nil {
		at := metav1.NewTime(t.Truncate(time.Second))
		next.SubscriptionInterventionTime = &at
	}

	var event *Event
	if last == nil || last.Message != message || previous.ObservedGeneration != in.Policy.Generation ||
		previous.Compliant == "" {
		event = &Event{Message: message, Type: eventType(message), Time: in.Now}
	}
	return next, event
}

// nextConditions returns what is written of the conditions of an outcome, and nothing else: a condition that it has not
// would be outdated.
func nextConditions(previous []metav1.Condition, conditions []Condition, now metav1.Time) []metav1.Condition {
	next := make([]metav1.Condition, 0, len(conditions)+1)
	for _, f := range conditions {
		since := now
		if !f.Since.IsZero() {
			since = metav1.NewTime(f.Since.Truncate(time.Second))
		}
		c := metav1.Condition{Type: f.Type, Status: f.Status, Reason: reasonOr(f.Reason),
			Message: text.TruncateSuffix(f.Message, conditionMessageLength, truncatedSuffix)}
		c = transitioned(c, meta.FindStatusCondition(previous, f.Type), since)
		if before := meta.FindStatusCondition(next, f.Type); before != nil {
			*before = c // the API server refuses a status with two conditions of a type
			continue
		}
		next = append(next, c)
	}
	return next
}

// transitioned returns a condition with its transition time: since, unless it equals the previous one.
func transitioned(c metav1.Condition, previous *metav1.Condition, since metav1.Time) metav1.Condition {
	c.LastTransitionTime = since
	if previous != nil && previous.Status == c.Status && previous.Reason == c.Reason && previous.Message == c.Message {
		c.LastTransitionTime = previous.LastTransitionTime
	}
	return c
}

// nextRelated returns the related objects of the conditions, and the previous ones of the kinds with
// KeepRelated. Never nil: an empty list means that nothing is related.
func nextRelated(previous []policyv1beta2.RelatedObject, conditions []Condition) []policyv1beta2.RelatedObject {
	next := []policyv1beta2.RelatedObject{}
	keep := map[string]bool{}
	for _, f := range conditions {
		if _, decided := keep[kindOf[f.Type]]; !decided || !f.KeepRelated {
			keep[kindOf[f.Type]] = f.KeepRelated
		}
	}
	for i := range previous {
		if keep[previous[i].Object.Kind] {
			next = append(next, *previous[i].DeepCopy())
		}
	}
	for _, f := range conditions {
		if f.KeepRelated {
			continue
		}
		for i := range f.Related {
			next = append(next, *f.Related[i].DeepCopy())
		}
	}
	slices.SortStableFunc(next, func(a, b policyv1beta2.RelatedObject) int {
		return cmp.Or(cmp.Compare(a.Object.Kind, b.Object.Kind),
			cmp.Compare(a.Object.Metadata.Name, b.Object.Metadata.Name),
			cmp.Compare(a.Object.Metadata.Namespace, b.Object.Metadata.Namespace))
	})
	return next
}

// createdByPolicy reports whether the policy created this very object, in whatever generation.
func (in *Input) createdByPolicy(kind string, o *olm.ObjectMeta) bool {
	_, _, created := rules.Created(in.Key, in.Policy, kind, o)
	return created
}

// mark adds the mark of the policy to the annotations of an object that it creates, or has created, with the fields of the
// spec that it sets.
func (in *Input) mark(annotations map[string]any, kind string, o *olm.ObjectMeta, spec map[string]any) map[string]any {
	if mark := rules.CreatedMark(in.Key, in.Policy, kind, o, slices.Sorted(maps.Keys(spec))); mark != "" {
		annotations[metakey.CreatedBy] = mark
	}
	return annotations
}

// Outcome is the result of evaluating a policy.
type Outcome struct {
	// Conditions has one for each condition type that was evaluated, in the order of the contract.
	Conditions []Condition
	// Actions are the writes that the policy requires, in the order in which they are carried out;
	// none for a policy that informs or is not valid. The first failure ends the list.
	Actions []Action
	// Intervention is the time of the intervention for a stuck Subscription; nil if none is stuck.
	Intervention *metav1.Time
	// After is the delay until the policy is evaluated again without an event; 0 for never.
	After time.Duration
	// InstalledVersion is the installed ClusterServiceVersion, "" for none.
	InstalledVersion string
	// Waiting is the ClusterServiceVersion that waits for approval, and what for; "" for none.
	Waiting string
}

// Condition is a condition of the status before it is written, with its related objects.
type Condition struct {
	Type    string
	Status  metav1.ConditionStatus
	Reason  string
	Message string
	// Since replaces the transition time if the condition repeats one of OLM's; else zero.
	Since metav1.Time
	// Related replaces all related objects of the kind of the condition type (kindOf) in the status, unless KeepRelated
	// is set.
	Related     []policyv1beta2.RelatedObject
	KeepRelated bool
}

func condition(
	conditionType string, status metav1.ConditionStatus, reason, message string, related ...policyv1beta2.RelatedObject,
) Condition {
	return Condition{Type: conditionType, Status: status, Reason: reason, Message: message, Related: related}
}

// find returns the condition of a type among some, nil if there is none.
func find(conditions []Condition, conditionType string) *Condition {
	i := slices.IndexFunc(conditions, func(f Condition) bool { return f.Type == conditionType })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}

// Action is one write to the cluster. It applies only to the state that was observed.
type Action struct {
	// Object is the whole object to create, or the desired state; nil to delete it.
	Object map[string]any
	// Live is the object as it was observed; nil to create it.
	Live map[string]any
	// Status is set if the difference is one of the status.
	Status bool
	// Done is the condition after the action was carried out; it replaces the condition of the same type. Related
	// objects without a UID in it get that of the object.
	Done Condition
	// Failed returns the condition for an action that was refused; nil leaves the condition unchanged.
	Failed func(reason string) Condition
}

// again makes the policy be evaluated again after a delay at the latest.
func (o *Outcome) again(after time.Duration) {
	if o.After == 0 || after < o.After {
		o.After = after
	}
}

// Replace replaces the condition of the same type; a condition without a type changes nothing.
func (o *Outcome) Replace(f Condition) {
	if replaced := find(o.Conditions, f.Type); replaced != nil {
		*replaced = f
	}
}

// For returns the condition with the name and the UID of the object in those related objects that have none,
// because the object was only just created.
func (f Condition) For(name, uid string) Condition {
	f.Related = slices.Clone(f.Related)
	for i := range f.Related {
		r := f.Related[i].DeepCopy()
		if r.Object.Metadata.Name == "" || r.Object.Metadata.Name == noName {
			r.Object.Metadata.Name = name
		}
		if r.Properties != nil && r.Properties.UID == "" {
			r.Properties.UID = uid
		}
		f.Related[i] = *r
	}
	return f
}
