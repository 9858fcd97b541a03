package compliance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
)

const (
	// messageLength is the maximum length, in bytes, of a compliance message. Tools store it in fields of this size.
	messageLength   = 4096
	truncatedSuffix = "...[truncated]"
	// namespacePrefix begins the message of the only fault of a policy that does not hide the others.
	namespacePrefix = "the operator namespace"
	eventComponent  = "configuration-policy-controller"
)

// aggregated is one condition of the aggregate, in the order of their messages if they changed at the same time.
type aggregated struct {
	conditionType string
	good          metav1.ConditionStatus
	// counts reports whether the policy's compliance depends on it; nil means always.
	counts func(*policyv1beta2.OperatorPolicySpec) bool
	// onlyBad omits its message while its status is good.
	onlyBad bool
}

var aggregatedTypes = []aggregated{
	{conditionType: TypeValidPolicySpec, good: metav1.ConditionTrue},
	{conditionType: TypeOperatorGroup, good: metav1.ConditionTrue},
	{conditionType: TypeSubscription, good: metav1.ConditionTrue},
	{conditionType: TypeInstallPlan, good: metav1.ConditionTrue},
	{conditionType: TypeClusterServiceVersion, good: metav1.ConditionTrue},
	{conditionType: TypeCustomResourceDefinition, good: metav1.ConditionTrue},
	{conditionType: TypeDeployment, good: metav1.ConditionTrue},
	{conditionType: TypeCatalogSourcesUnhealthy, good: metav1.ConditionFalse},
	{conditionType: TypeNoDeprecations, good: metav1.ConditionTrue,
		counts: func(spec *policyv1beta2.OperatorPolicySpec) bool {
			deprecations := spec.ComplianceConfig.DeprecationsPresent
			return !spec.IsMustNotHave() && deprecations == policyv1beta2.ConfigNonCompliant
		}},
	{conditionType: TypeMinorChannelUpgradeAvailable, good: metav1.ConditionTrue, onlyBad: true,
		counts: func(spec *policyv1beta2.OperatorPolicySpec) bool {
			return !spec.IsMustNotHave() && spec.ComplianceConfig.MinorChannelUpgradeAvailable ==
				policyv1beta2.ConfigNonCompliant
		}},
}

// aggregate summarizes the conditions: the outcome, and the message, which begins with it. What makes the policy
// NonCompliant comes before all else, and in both parts the most recent change first.
func aggregate(
	spec *policyv1beta2.OperatorPolicySpec, conditions []metav1.Condition,
) (policyv1beta2.ComplianceState, string) {
	if valid := meta.FindStatusCondition(conditions, TypeValidPolicySpec); valid != nil &&
		valid.Status != metav1.ConditionTrue && !strings.HasPrefix(strings.ToLower(valid.Message), namespacePrefix) {
		return policyv1beta2.NonCompliant, complianceMessage(policyv1beta2.NonCompliant, []string{valid.Message})
	}
	if waiting := meta.FindStatusCondition(conditions, TypeDependencies); waiting != nil {
		return policyv1beta2.Pending, complianceMessage(policyv1beta2.Pending, []string{waiting.Message})
	}
	compliant := policyv1beta2.Compliant
	var faults, changed []metav1.Condition
	var missing []string
	for _, a := range aggregatedTypes {
		if a.counts != nil && !a.counts(spec) {
			continue
		}
		c := meta.FindStatusCondition(conditions, a.conditionType)
		switch {
		case c == nil:
			missing = append(missing, a.conditionType+" could not be determined")
		case c.Status != a.good:
			faults = append(faults, *c)
		case !a.onlyBad:
			changed = append(changed, *c)
		}
		if c == nil || c.Status != a.good {
			compliant = policyv1beta2.NonCompliant
		}
	}
	var messages []string
	for _, part := range [][]metav1.Condition{faults, changed} {
		slices.SortStableFunc(part,
			func(a, b metav1.Condition) int { return b.LastTransitionTime.Compare(a.LastTransitionTime.Time) })
		for i := range part {
			// most conditions say that an operator is installed elsewhere
			if text := part[i].Message; !slices.Contains(messages, text) {
				messages = append(messages, text)
			}
		}
	}
	return compliant, complianceMessage(compliant, append(messages, missing...))
}

// complianceMessage returns the message: the outcome, which is all that the policy framework parses, and its causes.
func complianceMessage(compliant policyv1beta2.ComplianceState, messages []string) string {
	return text.TruncateSuffix(string(compliant)+"; "+strings.Join(messages, ", "), messageLength, truncatedSuffix)
}

// Event is a change of compliance that is reported.
type Event struct {
	// Message begins with "Compliant; " or "NonCompliant; ".
	Message string
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type string
	Time time.Time
}

// eventType depends on the text of the message, which may differ from the policy's state by then.
func eventType(message string) string {
	if strings.HasPrefix(message, string(policyv1beta2.Compliant)+";") {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}

// ComplianceEvent returns the object that the policy framework reads the compliance from: an event on the owner
// of the policy, in the policy's namespace. It is nil for a policy without an owner. Instance is the name of
// the reporting process.
func ComplianceEvent(op *policyv1beta2.OperatorPolicy, e Event, instance string) *corev1.Event { //nolint:revive // the policy framework's own word for it
	if len(op.OwnerReferences) == 0 {
		return nil
	}
	owner := &op.OwnerReferences[0]
	at := metav1.NewTime(e.Time)
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: op.Namespace,
			Name: fmt.Sprintf("%s.%x", owner.Name, e.Time.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: op.Namespace, Name: owner.Name, UID: owner.UID,
		},
		Related: &corev1.ObjectReference{
			APIVersion: policyv1beta2.GroupVersion.String(), Kind: policyv1beta2.Kind, Namespace: op.Namespace,
			Name: op.Name, UID: op.UID,
		},
		Reason:              "policy: " + op.Namespace + "/" + op.Name,
		Message:             e.Message,
		Type:                e.Type,
		Action:              "ComplianceStateUpdate",
		Source:              corev1.EventSource{Component: eventComponent, Host: instance},
		ReportingController: eventComponent,
		ReportingInstance:   instance,
		FirstTimestamp:      at,
		LastTimestamp:       at,
		Count:               1,
	}
}
