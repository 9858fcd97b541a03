package dependency

import (
	"cmp"
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
)

// Live is the object of a template as it is on the cluster.
type Live struct {
	// Ours is set where it belongs to the Policy. Owner is another owner, nil if none.
	Ours  bool
	Owner *Ref
	// Suspended is set where it has AnnotationPending, Deleting where it is being deleted.
	Suspended, Deleting bool
	Object              map[string]any
	Observed            Observed
}

// LiveOf reads the object of a template; nil if it does not exist.
func LiveOf(object map[string]any, p *Policy) *Live {
	if object == nil {
		return nil
	}
	u := &unstructured.Unstructured{Object: object}
	_, suspended := u.GetAnnotations()[AnnotationPending]
	live := &Live{Suspended: suspended, Deleting: u.GetDeletionTimestamp() != nil, Object: object,
		Observed: Observe(object)}
	live.Ours, live.Owner = p.owns(u)
	return live
}

// PolicyOf returns the Policy that an object was created for, from its labels. Cluster-scoped objects name the
// namespace of the Policy in a label.
func PolicyOf(object map[string]any) (Ref, bool) {
	namespace := cmp.Or(textAt(object, "metadata", "namespace"), textAt(object, "metadata", "labels", LabelClusterNamespace))
	name := textAt(object, "metadata", "labels", LabelPolicy)
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
	case l == nil, l.Observed.Stale(), !l.Observed.HasState, l.templateWithoutAnswer():
		return Unknown, true
	case known(l.Observed.State):
		return l.Observed.State, false
	}
	return Unknown, false
}

func known(s State) bool { return s == Compliant || s == NonCompliant || s == Pending }

// notCreated reports whether Gatekeeper has refused a ConstraintTemplate.
func (l *Live) notCreated() bool {
	created, said, _ := unstructured.NestedBool(l.Object, "status", "created")
	return l.constraintTemplate() && said && !created
}

// templateWithoutAnswer reports whether Gatekeeper has not processed a ConstraintTemplate yet.
func (l *Live) templateWithoutAnswer() bool {
	_, said, _ := unstructured.NestedBool(l.Object, "status", "created")
	return l.constraintTemplate() && !said
}

func (l *Live) constraintTemplate() bool {
	return RefOf(&unstructured.Unstructured{Object: l.Object}).constraintTemplate()
}

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
