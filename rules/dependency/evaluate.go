package dependency

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
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
	// State is the state in its status; empty if there is none.
	State State
	// Evaluating is set where the object reports that its state is not known yet.
	Evaluating bool
}

// observed returns the state of a Policy or a PolicySet.
func observed(uid types.UID, generation, observedGeneration int64, state State, evaluating bool) Observed {
	return Observed{UID: uid, Generation: generation, ObservedGeneration: observedGeneration,
		HasObserved: observedGeneration != 0, State: state, Evaluating: evaluating}
}

// Found reports whether the object was read.
func (o Observed) Found() bool { return o.Reason == "" }

// Stale reports whether the status is of another generation than the object.
func (o Observed) Stale() bool { return o.HasObserved && o.ObservedGeneration != o.Generation }

// Observe reads an existing object; it accepts any content.
func Observe(object map[string]any) Observed {
	o := Observed{UID: types.UID(textAt(object, "metadata", "uid"))}
	o.Generation, _ = numberAt(object, "metadata", "generation")
	o.ObservedGeneration, o.HasObserved = numberAt(object, "status", "observedGeneration")
	r := RefOf(&unstructured.Unstructured{Object: object})
	if !o.HasObserved && r.Group == PolicyGroup { // ConfigurationPolicy's name of the field
		o.ObservedGeneration, o.HasObserved = numberAt(object, "status", "lastEvaluatedGeneration")
	}
	switch {
	case r.constraintTemplate():
		o.State = Compliant
		return o
	case r.Group == GatekeeperConstraintGroup:
		if violations, ok := numberAt(object, "status", "totalViolations"); ok {
			if o.State = Compliant; violations > 0 {
				o.State = NonCompliant
			}
		}
		return o
	}
	o.State = State(cmp.Or(textAt(object, "status", "compliant"), textAt(object, "status", "complianceState")))
	if o.State == Unknown {
		o.observeCondition(compliantCondition(object))
	}
	return o
}

// observeCondition reads condition Compliant if the status has no other state.
func (o *Observed) observeCondition(c map[string]any) {
	switch textAt(c, "status") {
	case "True":
		o.State = Compliant
	case "False":
		o.State = NonCompliant
	case "Unknown":
		o.Evaluating = textAt(c, "reason") == ReasonNotEvaluated
	}
	if observed, ok := numberAt(c, "observedGeneration"); ok && o.State != Unknown && !o.HasObserved {
		o.ObservedGeneration, o.HasObserved = observed, true
	}
}

// compliantCondition returns condition Compliant of an object, or nil.
func compliantCondition(object map[string]any) map[string]any {
	for _, c := range entriesAt(object, "status", "conditions") {
		if textAt(c, "type") == ConditionCompliant {
			return c
		}
	}
	return nil
}

// entriesAt returns the objects in a list; those that are no objects are nil.
func entriesAt(object map[string]any, path ...string) []map[string]any {
	field, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	list, _ := field.([]any)
	entries := make([]map[string]any, len(list))
	for i := range list {
		entries[i], _ = list[i].(map[string]any)
	}
	return entries
}

// numberAt returns an integer.
func numberAt(object map[string]any, path ...string) (int64, bool) {
	n, ok, _ := unstructured.NestedNumberAsFloat64(object, path...)
	return int64(n), ok && n == float64(int64(n))
}

// Result is the result of evaluating one dependency.
type Result struct {
	Dependency
	Met bool
	// Undecided is set where the dependency is not met but may be soon. It changes nothing.
	Undecided bool
	// Unread is set where the object has not been read yet.
	Unread bool
	Reason Reason
	// State is the state in the object's status, empty if none.
	State State
	// Text explains the reason.
	Text string
}

// Evaluate reports whether a dependency is met by what was observed.
func Evaluate(d Dependency, o Observed) Result {
	f := Result{Dependency: d, State: o.State}
	switch {
	case o.Reason == NotFound && d.constraintTemplate() && (d.Want == NonCompliant || d.Want == Pending):
		f.Met = true // for this kind, existing means Compliant
	case o.Reason != "":
		f.Reason, f.Text = o.Reason, text.Truncate(cmp.Or(o.Detail, notRead[o.Reason]), 500)
		f.Undecided = o.Reason == NotRead || o.Reason == TooMany
		f.Unread = o.Reason == NotRead && o.Detail == ""
	case o.Stale():
		f.Reason, f.Undecided = Stale, true
		f.Text = "generation " + strconv.FormatInt(o.Generation, 10) + " is not evaluated yet"
	case o.State == Unknown:
		f.Reason, f.Undecided = NoStatus, o.Evaluating
		f.Text = "it has neither status.compliant nor status.complianceState"
		if d.Group == GatekeeperConstraintGroup {
			f.Text = "it has no status.totalViolations"
		}
	case o.State != d.Want:
		f.Reason = WrongState
		f.Text = "it is " + text.Name(string(o.State)) + ", want " + text.Name(string(d.Want))
	default:
		f.Met = true
	}
	return f
}

// notRead are the texts of the reasons why an object could not be read.
var notRead = map[Reason]string{
	NotFound:  "it does not exist",
	NoKind:    "the cluster does not serve this kind",
	Forbidden: "opgate may not read it",
	TooMany:   "it has not been read yet",
	NotRead:   "it has not been read yet",
}

// AllMet reports whether all dependencies are met, and whether that is decided: one that is not met decides it; one
// that is stale or not read yet leaves it undecided.
func AllMet(results []Result) (met, decided bool) {
	met, decided = true, true
	for i := range results {
		switch {
		case results[i].Met:
		case results[i].Undecided:
			met, decided = false, false
		default:
			return false, true
		}
	}
	return met, decided
}

// unmet returns the results that are not met.
func unmet(results []Result) []Result {
	var rest []Result
	for i := range results {
		if !results[i].Met {
			rest = append(rest, results[i])
		}
	}
	return rest
}

// Live is the object of a template as it is on the cluster.
type Live struct {
	// Ours is set where it belongs to the Policy. Owner is another owner, nil if none.
	Ours  bool
	Owner *Ref
	// Suspended is set where it has metakey.Pending, Deleting where it is being deleted.
	Suspended, Deleting bool
	// Refused is set for a ConstraintTemplate that Gatekeeper has refused, Unanswered for one that it has not processed.
	Refused, Unanswered bool
	Object              map[string]any
	Observed            Observed
}

// LiveOf reads the object of a template; nil if it does not exist.
func LiveOf(object map[string]any, p *Policy) *Live {
	if object == nil {
		return nil
	}
	u := &unstructured.Unstructured{Object: object}
	_, suspended := u.GetAnnotations()[metakey.Pending]
	live := &Live{Suspended: suspended, Deleting: u.GetDeletionTimestamp() != nil, Object: object,
		Observed: Observe(object)}
	live.Ours, live.Owner = p.owns(u)
	if RefOf(u).constraintTemplate() {
		created, said, _ := unstructured.NestedBool(object, "status", "created")
		live.Refused, live.Unanswered = said && !created, !said
	}
	return live
}

// PolicyOf returns the Policy that an object was created for, from its labels. Cluster-scoped objects name the
// namespace of the Policy in a label.
func PolicyOf(object map[string]any) (Ref, bool) {
	namespace := cmp.Or(textAt(object, "metadata", "namespace"), textAt(object, "metadata", "labels", metakey.ClusterNamespace))
	name := textAt(object, "metadata", "labels", metakey.Policy)
	return PolicyRef(namespace, name), name != "" && namespace != ""
}

// owns reports whether an object belongs to the Policy, by its controller reference or, if it has none, by its labels.
// A controller of the same name with another UID is an earlier Policy, whose objects are adopted.
func (p *Policy) owns(u *unstructured.Unstructured) (ours bool, other *Ref) {
	policy, labelled := PolicyOf(u.Object)
	if o := metav1.GetControllerOf(u); o != nil {
		gv, _ := schema.ParseGroupVersion(o.APIVersion)
		controller := Ref{Group: gv.Group, Kind: o.Kind, Namespace: u.GetNamespace(), Name: o.Name}
		if o.UID == p.UID && o.UID != "" || controller == p.Ref() && labelled && policy == p.Ref() {
			return true, nil
		}
		return false, &controller
	}
	switch {
	case !labelled:
		return false, nil
	case policy == p.Ref():
		return true, nil
	}
	return false, &policy
}

// RefOf returns the reference to an object.
func RefOf(u *unstructured.Unstructured) Ref {
	gvk := u.GroupVersionKind()
	return Ref{Group: gvk.Group, Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
}

// textAt returns the text of a field; "" if there is none.
func textAt(object map[string]any, path ...string) string {
	s, _, _ := unstructured.NestedString(object, path...)
	return s
}

// state returns the object's state for its present generation. Any other value than the three states is unknown.
func (l *Live) state() (state State, evaluating bool) {
	switch {
	case l == nil, l.Observed.Stale(), l.Observed.State == Unknown, l.Unanswered:
		return Unknown, true
	case known(l.Observed.State):
		return l.Observed.State, false
	}
	return Unknown, false
}

func known(s State) bool { return s == Compliant || s == NonCompliant || s == Pending }

// message returns the object's own message for its state, from its history, else from its condition; "" if there is
// none.
func (l *Live) message(ref Ref, state State) string {
	if entries := entriesAt(l.Object, "status", "history"); len(entries) > 0 {
		if said, ok := stated(textAt(entries[0], "message"), state); ok {
			return said
		}
	}
	c := compliantCondition(l.Object)
	if says := textAt(c, "message"); says != "" && (textAt(c, "status") == "True") == (state == Compliant) {
		if said, ok := stated(says, state); ok {
			return said
		}
	}
	return message(state, ref.String()+" is "+string(state))
}

// stated prefixes a message with the state unless it begins with it. It is not ok if the message is of another state.
func stated(says string, state State) (string, bool) {
	before, after, separated := strings.Cut(says, ";")
	before = strings.TrimSpace(before)
	switch {
	case says == "":
		return "", false
	case !separated || !known(State(before)):
		return message(state, says), true
	}
	return message(state, strings.TrimSpace(after)), State(before) == state
}

// Override sets the fields of a template's object that its Policy decides: the namespace, unless the kind is known to
// be cluster-scoped, and spec.remediationAction. Constraint and the kinds of Gatekeeper have no such field.
func Override(object map[string]any, policy *policyv1.Policy) error {
	u := &unstructured.Unstructured{Object: object}
	if _, ok := object["metadata"].(map[string]any); !ok {
		return errors.New("objectDefinition has no metadata")
	}
	if RefOf(u).clusterScoped() {
		u.SetNamespace("")
		return nil
	}
	u.SetNamespace(policy.Namespace)
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return nil // depends on the scope of its kind
	}
	const field = "remediationAction"
	action := string(policy.Spec.RemediationAction)
	if strings.EqualFold(textAt(spec, field), "InformOnly") {
		action = string(policyv1.Inform) // inform is kept, whatever the Policy's action
	}
	if action != "" {
		spec[field] = action
	}
	return nil
}
