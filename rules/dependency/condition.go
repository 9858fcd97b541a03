package dependency

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/text"
)

// ConditionCompliant is the condition that says the same as status.compliant, and why.
const ConditionCompliant = "Compliant"

// What a suspended guard says of itself: condition DependenciesSatisfied is False, for the reason that refusals name as well. A
// guard that is not suspended has no such condition.
const (
	ConditionDependencies   = "DependenciesSatisfied"
	ReasonDependencyPending = "DependencyPending"
)

// Reasons of condition Compliant, besides the states.
const (
	// ReasonNotEvaluated: the state is not known yet, because something has not been evaluated since it was written.
	ReasonNotEvaluated = "NotEvaluated"
	// ReasonUnknown: nobody says what the state is.
	ReasonUnknown = "Unknown"
	// ReasonDisabled: the Policy is disabled.
	ReasonDisabled = "Disabled"
	// ReasonNoTemplates: the Policy has no templates.
	ReasonNoTemplates = "NoTemplates"
	// ReasonExcluded: the namespace is one that Opgate leaves out.
	ReasonExcluded = "NamespaceExcluded"
)

// excluded says of a namespace that is left out why nothing happens there.
const excluded = "the namespace is one that Opgate leaves out, so nothing of the policy is applied"

// summary is what a status says of the whole.
type summary struct {
	state State
	// evaluating: it is unknown, but will be known. reason, if it is given, is why else it is unknown.
	evaluating bool
	reason     string
	message    string
}

// setCondition writes condition Compliant. Its time changes only with its status.
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

// notEvaluated reports whether condition Compliant says that the state is not known yet.
func notEvaluated(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, ConditionCompliant)
	return c != nil && c.Status == metav1.ConditionUnknown && c.Reason == ReasonNotEvaluated
}
