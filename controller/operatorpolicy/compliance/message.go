package compliance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/operatorpolicy"
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

// named returns namespace/name, as messages name an object.
func named(o *olm.ObjectMeta) string { return text.Name(o.Key()) }

// filter returns the items that satisfy a condition, in a list of their own.
func filter[T any](items []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(items), func(item T) bool { return !keep(item) })
}

// maxListed is the number of names that a message lists.
const maxListed = 20

// sentences joins sentences up to a readable length, and counts the rest.
func sentences(parts []string) string {
	const most, longest = 20, 500
	few := make([]string, 0, min(len(parts), most+1))
	for _, part := range parts[:min(len(parts), most)] {
		few = append(few, text.Truncate(part, longest))
	}
	if more := len(parts) - most; more > 0 {
		few = append(few, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(few, "; ")
}

// valueText returns a value of a field for a message.
func valueText(value any) string {
	switch v := value.(type) {
	case nil:
		return "not set"
	case string:
		return text.Quote(v)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return "not readable"
	}
	return text.Truncate(string(raw), 200)
}

// foreignText is the maximum length of quoted messages from other components.
const foreignText = 1000

var validReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,254}[A-Za-z0-9_])?$`)

// reasonOr returns the first of some words that is a valid reason of a condition: the API server refuses the
// whole status for one that is empty or has other characters.
func reasonOr(words ...string) string {
	for _, word := range words {
		if validReason.MatchString(word) {
			return word
		}
	}
	return "Unknown"
}

// excepted adds the conditions on the author and on exceptions, additions of Opgate, and the delay until the time alone
// changes the latter.
func (e *evaluation) excepted(out Outcome) Outcome {
	if e.Unverified != "" {
		out.Conditions = append(out.Conditions, condition(operatorpolicy.ConditionAuthor, metav1.ConditionFalse, "StoredBefore",
			e.Unverified))
	}
	state := e.Rules.Exceptions().At(e.Now)
	inForce, reason, clauses := state.Condition()
	if len(clauses) == 0 {
		return out
	}
	out.Conditions = append(out.Conditions, condition(operatorpolicy.ConditionExceptions, statusIf(inForce),
		reason, sentences(clauses)))
	if next := e.Rules.Exceptions().Next(e.Now); !next.IsZero() {
		out.again(next.Sub(e.Now))
	}
	return out
}

// reasonEscaped is for what OLM wrote while no replica answered, and admission would have refused.
const reasonEscaped = "InstalledDuringOutage"

// escaped adds the ClusterServiceVersions that were installed while Opgate was not running to the condition on
// ClusterServiceVersions.
func (e *evaluation) escaped(out Outcome) Outcome {
	if len(e.Escaped) == 0 {
		return out
	}
	if f := find(out.Conditions, TypeClusterServiceVersion); f != nil {
		f.Status, f.Reason = metav1.ConditionFalse, reasonEscaped
		f.Message = text.Truncate(strings.Join(e.Escaped, "; "), foreignText) + "; " + f.Message
	}
	return out
}

// reviewed returns, to follow a sentence, who has consented to what an approved plan changes, and what the policy only
// warns of; "" if there is nothing to say. What holds a plan is among its blockers. Of a finished plan only its
// annotation is known.
func (e *evaluation) reviewed(plan *olm.InstallPlan) string {
	review := bundle.ReviewPlan(e.Rules, plan, e.Namespace, e.Now)
	var parts []string
	if plan.Spec.Approved {
		for _, c := range review.Consents {
			parts = append(parts, "consent: "+c.String())
		}
		if annotations := &plan.Metadata.Annotations; len(review.Consents) == 0 && annotations.Consent != "" {
			part := "annotation " + metakey.Consent + " consents to " +
				text.Truncate(text.Escape(annotations.Consent), foreignText)
			if annotations.ConsentBy != "" {
				part += " for user " + text.Quote(annotations.ConsentBy)
			}
			parts = append(parts, part)
		}
	}
	for _, w := range review.Warnings {
		parts = append(parts, w.Message)
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + sentences(parts)
}

// suspended modifies an outcome while the dependencies of the policy's Policy are not met: conditions are
// reported, and nothing is created, changed or removed. Subscriptions that the policy manages are switched to manual
// approval, since an Automatic one would make OLM write plans that are refused.
func (e *evaluation) suspended(out Outcome) Outcome {
	out.Actions, out.Intervention, out.After = nil, nil, 0
	out.Conditions = append(out.Conditions, condition(TypeDependencies, metav1.ConditionFalse,
		dependency.ReasonDependencyPending,
		cmp.Or(e.Rules.Waits, "the policy waits for what Policy "+e.Rules.Pending+" depends on")+
			"; until then nothing is approved, created or removed for it"))
	if !e.enforced {
		return out
	}
	for _, s := range e.Namespace.Subscriptions() {
		if s.Spec.Package == e.wanted.name &&
			e.Policy.Spec.ComplianceType == policyv1beta2.MustHave {
			out.Actions = append(out.Actions, e.madeToWait(s)...)
		}
	}
	return out
}

func (e *evaluation) madeToWait(s *olm.Subscription) []Action {
	if s.Spec.InstallPlanApproval == olm.ApprovalManual {
		return nil
	}
	live := subscriptionContent(s)
	waiting := with(live, olm.ApprovalManual, "spec", "installPlanApproval")
	return []Action{{Object: e.remembering(s, live, waiting), Live: live}}
}
