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
	// NoKind: no established CRD serves the kind, or not in that version.
	NoKind Reason = "NoKind"
	// NoStatus: the object does not say how compliant it is.
	NoStatus Reason = "NoStatus"
	// WrongState: it is in another state than the wanted one.
	WrongState Reason = "WrongState"
	// Forbidden: Opgate may not read it.
	Forbidden Reason = "Forbidden"
	// Stale: its status is of another generation. It changes nothing: what is applied stays, what waits goes on waiting.
	Stale Reason = "Stale"
	// TooMany: it is beyond what is watched for the Policy, its namespace or all together. It changes nothing: what Opgate does not
	// look at is no reason to take anything back.
	TooMany Reason = "TooMany"
	// NotRead: nothing is known of it yet. It changes nothing either.
	NotRead Reason = "NotRead"
)

// Observed is what is known of one object that is depended on, or that a template made.
type Observed struct {
	// Reason is one of NotFound, NoKind, Forbidden, TooMany and NotRead where the object could not be read, and Detail what more
	// there is to say. Empty where it was read.
	Reason Reason
	Detail string
	// UID, Generation and the rest are of the object that was read.
	UID                types.UID
	Generation         int64
	ObservedGeneration int64
	HasObserved        bool
	// State is what its status says. HasState is false where it says nothing.
	State    State
	HasState bool
	// Evaluating says that the object itself tells that its state is not known yet.
	Evaluating bool
}

// Found reports whether the object was read.
func (o Observed) Found() bool { return o.Reason == "" }

// Stale reports whether the status is of another generation than the object.
func (o Observed) Stale() bool { return o.HasObserved && o.ObservedGeneration != o.Generation }

// Observe reads the facts of an object that exists, whatever is in it.
func Observe(object map[string]any) Observed {
	meta, status := child(object, "metadata"), child(object, "status")
	o := Observed{UID: types.UID(textOf(meta, "uid"))}
	o.Generation, _ = number(meta, "generation")
	o.ObservedGeneration, o.HasObserved = number(status, "observedGeneration")
	r := refOf(object)
	if !o.HasObserved && r.Group == PolicyGroup { // the name that ConfigurationPolicy has for it
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

// observeCondition reads condition Compliant, where the status says nothing else.
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

// condition returns condition Compliant of a status, nil if there is none.
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

// number reads a whole number, whichever way it was decoded.
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
