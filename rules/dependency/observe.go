package dependency

import (
	"k8s.io/apimachinery/pkg/types"
)

// Reason is why a dependency is not met.
type Reason string

// The reasons.
const (
	// NotFound: the object does not exist.
	NotFound Reason = "NotFound"
	// NoKind: no established CRD serves the kind, or not this version.
	NoKind Reason = "NoKind"
	// NoStatus: the status of the object has no compliance state.
	NoStatus Reason = "NoStatus"
	// WrongState: its state is not the wanted one.
	WrongState Reason = "WrongState"
	// Forbidden: RBAC does not let Opgate read it.
	Forbidden Reason = "Forbidden"
	// Stale: its status is of another generation. It changes nothing: applied objects stay, waiting templates keep
	// waiting.
	Stale Reason = "Stale"
	// TooMany: it exceeds the watch limits of the Policy, its namespace or the total. It changes nothing: an object
	// that is not watched is no reason to remove anything.
	TooMany Reason = "TooMany"
	// NotRead: it has not been read yet. It changes nothing either.
	NotRead Reason = "NotRead"
)

// Observed is the observed state of one dependency, or of an object that a template created.
type Observed struct {
	// Reason is NotFound, NoKind, Forbidden, TooMany or NotRead if the object could not be read, with a detail in
	// Detail. Empty if it was read.
	Reason Reason
	Detail string
	// UID, Generation and the other fields are those of the object that was read.
	UID                types.UID
	Generation         int64
	ObservedGeneration int64
	HasObserved        bool
	// State is the state in its status. HasState is false if there is none.
	State    State
	HasState bool
	// Evaluating is set where the object reports that its state is not known yet.
	Evaluating bool
}

// Found reports whether the object was read.
func (o Observed) Found() bool { return o.Reason == "" }

// Stale reports whether the status is of another generation than the object.
func (o Observed) Stale() bool { return o.HasObserved && o.ObservedGeneration != o.Generation }

// Observe reads an existing object; it accepts any content.
func Observe(object map[string]any) Observed {
	meta, status := child(object, "metadata"), child(object, "status")
	o := Observed{UID: types.UID(textOf(meta, "uid"))}
	o.Generation, _ = number(meta, "generation")
	o.ObservedGeneration, o.HasObserved = number(status, "observedGeneration")
	r := refOf(object)
	if !o.HasObserved && r.Group == PolicyGroup { // ConfigurationPolicy's name of the field
		o.ObservedGeneration, o.HasObserved = number(status, "lastEvaluatedGeneration")
	}
	switch {
	case r.Group == GatekeeperTemplateGroup && r.Kind == KindConstraintTemplate:
		o.State, o.HasState = Compliant, true
		return o
	case r.Group == GatekeeperConstraintGroup:
		if violations, ok := number(status, "totalViolations"); ok {
			o.HasState = true
			if o.State = Compliant; violations > 0 {
				o.State = NonCompliant
			}
		}
		return o
	}
	for _, field := range []string{"compliant", "complianceState"} {
		if state := textOf(status, field); state != "" {
			o.State, o.HasState = State(state), true
			return o
		}
	}
	o.observeCondition(status)
	return o
}

// observeCondition reads condition Compliant if the status has no other state.
func (o *Observed) observeCondition(status map[string]any) {
	c := condition(status)
	switch textOf(c, "status") {
	case "True":
		o.State, o.HasState = Compliant, true
	case "False":
		o.State, o.HasState = NonCompliant, true
	case "Unknown":
		o.Evaluating = textOf(c, "reason") == ReasonNotEvaluated
	}
	if observed, ok := number(c, "observedGeneration"); ok && o.HasState && !o.HasObserved {
		o.ObservedGeneration, o.HasObserved = observed, true
	}
}

// condition returns condition Compliant of a status, or nil.
func condition(status map[string]any) map[string]any {
	list, _ := status["conditions"].([]any)
	for _, entry := range list {
		if c, ok := entry.(map[string]any); ok && textOf(c, "type") == ConditionCompliant {
			return c
		}
	}
	return nil
}

func child(object map[string]any, field string) map[string]any {
	c, _ := object[field].(map[string]any)
	return c
}

func textOf(object map[string]any, field string) string {
	s, _ := object[field].(string)
	return s
}

// number reads an integer, whichever type it was decoded to.
func number(object map[string]any, field string) (int64, bool) {
	switch n := object[field].(type) {
	case int64:
		return n, true
	case int:
		return int64(n), true
	case float64:
		return int64(n), n == float64(int64(n))
	}
	return 0, false
}
