package compliance

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

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
	for i := range o.Conditions {
		if o.Conditions[i].Type == f.Type {
			o.Conditions[i] = f
		}
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
