package compliance

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

const (
	// conditionMessageLength is the maximum length, in bytes, of the message of a condition in the schema.
	conditionMessageLength = 32768
)

// Finish returns the status of the policy after an evaluation, and the event to report, or nil. The conditions
// of the outcome are those after its actions. It is idempotent: for its own result it returns the
// same status and no event. The history has at most historyMost entries, 10 if that is less
// than 1.
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
