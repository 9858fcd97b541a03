package compliance

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// Outcome is the result of evaluating a policy.
type Outcome struct {
	// Findings has one for each condition type that was evaluated, in the order of the contract.
	Findings []Finding
	// Actions are the writes that the policy requires, in the order in which they are carried out;
	// none for a policy that informs or is not valid. The first failure ends the list.
	Actions []Action
	// Intervention is the time of the intervention for a stuck Subscription; nil if none is stuck.
	Intervention *metav1.Time
	// After is the delay until the policy is evaluated again without an event; 0 for never.
	After time.Duration
	// InstalledVersion is the installed ClusterServiceVersion, "" for none.
	InstalledVersion string
}

// Finding is a condition before it is written, with its related objects.
type Finding struct {
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

func finding(
	conditionType string, status metav1.ConditionStatus, reason, message string, related ...policyv1beta2.RelatedObject,
) Finding {
	return Finding{Type: conditionType, Status: status, Reason: reason, Message: message, Related: related}
}

// Verb is the kind of a write.
type Verb string

// The verbs of actions.
const (
	Create Verb = "create"
	// Update changes the object to Object, with a patch of the differences from Live; it fails if Live is not
	// the newest state any more.
	Update Verb = "update"
	// UpdateStatus is Update on the status subresource.
	UpdateStatus Verb = "update status"
	// Delete deletes Live, if it is still the same object in the same state.
	Delete Verb = "delete"
)

// Action is one write to the cluster.
type Action struct {
	Verb Verb
	// Object is the whole object to create, or the desired state.
	Object map[string]any
	// Live is the object as it was observed; nil for Create.
	Live map[string]any
	// Done is the finding after the action was carried out; it replaces the finding of the same type. Related
	// objects without a UID in it get that of the object.
	Done Finding
	// Failed returns the finding for an action that was refused; nil leaves the finding unchanged.
	Failed func(reason string) Finding
}

// again makes the policy be evaluated again after a delay at the latest.
func (o *Outcome) again(after time.Duration) {
	if o.After == 0 || after < o.After {
		o.After = after
	}
}

// Replace replaces the finding of the same type; a finding without a type changes nothing.
func (o *Outcome) Replace(f Finding) {
	for i := range o.Findings {
		if o.Findings[i].Type == f.Type {
			o.Findings[i] = f
		}
	}
}

// For returns the finding with the name and the UID of the object in those related objects that have none,
// because the object was only just created.
func (f Finding) For(name, uid string) Finding {
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
