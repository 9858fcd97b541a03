package dependency

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/text"
)

// ConditionCompliant is the condition that repeats status.compliant, with a reason and a message.
const ConditionCompliant = "Compliant"

// Condition DependenciesSatisfied of a suspended object is False, with the reason that refusals name too. One that is
// not suspended has no such condition.
const (
	ConditionDependencies   = "DependenciesSatisfied"
	ReasonDependencyPending = "DependencyPending"
)

// Reasons of condition Compliant, in addition to the states.
const (
	// ReasonNotEvaluated: the state is not known yet, because an object was not evaluated since its last change.
	ReasonNotEvaluated = "NotEvaluated"
	// ReasonUnknown: no status reports the state.
	ReasonUnknown = "Unknown"
	// ReasonDisabled: the Policy is disabled.
	ReasonDisabled = "Disabled"
	// ReasonNoTemplates: the Policy has no templates.
	ReasonNoTemplates = "NoTemplates"
	// ReasonExcluded: Opgate excludes the namespace.
	ReasonExcluded = "NamespaceExcluded"
)

// excluded is the message for a Policy or PolicySet in an excluded namespace.
const excluded = "the namespace is one that Opgate leaves out, so nothing of the policy is applied"

// summary is the overall state of a Policy or PolicySet.
type summary struct {
	state State
	// evaluating is set where the state is not known yet. reason, if set, is another cause of an unknown state.
	evaluating bool
	reason     string
	message    string
}

// setCondition writes condition Compliant. Its transition time changes only with its status.
func setCondition(conditions *[]metav1.Condition, s summary, generation int64, now metav1.Time) {
	c := metav1.Condition{Type: ConditionCompliant, Status: metav1.ConditionFalse, Reason: string(s.state),
		Message: text.Truncate(s.message, maxMessage), ObservedGeneration: generation, LastTransitionTime: now}
	switch s.state {
	case Compliant:
		c.Status = metav1.ConditionTrue
	case Unknown:
		c.Status, c.Reason = metav1.ConditionUnknown, s.whyUnknown()
	default:
	}
	meta.SetStatusCondition(conditions, c)
}

func (s *summary) whyUnknown() string {
	switch {
	case s.reason != "":
		return s.reason
	case s.evaluating:
		return ReasonNotEvaluated
	}
	return ReasonUnknown
}

// hasReason reports whether condition Compliant is Unknown for a reason.
func hasReason(conditions []metav1.Condition, reason string) bool {
	c := meta.FindStatusCondition(conditions, ConditionCompliant)
	return c != nil && c.Status == metav1.ConditionUnknown && c.Reason == reason
}
