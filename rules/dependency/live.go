package dependency

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

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
	meta := child(object, "metadata")
	_, suspended := child(meta, "annotations")[AnnotationPending]
	live := &Live{Suspended: suspended, Deleting: meta["deletionTimestamp"] != nil, Object: object,
		Observed: Observe(object)}
	live.Ours, live.Owner = p.owns(object)
	return live
}

// PolicyOf returns the Policy that an object was created for, from its labels. Cluster-scoped objects name the
// namespace of the Policy in a label.
func PolicyOf(object map[string]any) (Ref, bool) {
	meta := child(object, "metadata")
	labels := child(meta, "labels")
	namespace := textOf(meta, "namespace")
	if namespace == "" {
		namespace = textOf(labels, LabelClusterNamespace)
	}
	name := textOf(labels, LabelPolicy)
	return PolicyRef(namespace, name), name != "" && namespace != ""
}

// owns reports whether an object belongs to the Policy, by its controller reference or, if it has none, by its labels.
// A controller of the same name with another UID is an earlier Policy, whose objects are adopted.
func (p *Policy) owns(object map[string]any) (ours bool, other *Ref) {
	policy, labelled := PolicyOf(object)
	if controller, uid := controllerOf(object); controller != nil {
		switch {
		case uid == p.UID && uid != "", *controller == p.Ref() && labelled && policy == p.Ref():
			return true, nil
		default:
			return false, controller
		}
	}
	switch {
	case !labelled:
		return false, nil
	case policy == p.Ref():
		return true, nil
	}
	return false, &policy
}

// controllerOf returns the owner that is the object's controller.
func controllerOf(object map[string]any) (*Ref, types.UID) {
	meta := child(object, "metadata")
	owners, _ := meta["ownerReferences"].([]any)
	for _, entry := range owners {
		o, ok := entry.(map[string]any)
		if controls, _ := o["controller"].(bool); ok && controls {
			gv, _ := schema.ParseGroupVersion(textOf(o, "apiVersion"))
			return &Ref{Group: gv.Group, Kind: textOf(o, "kind"), Namespace: textOf(meta, "namespace"),
				Name: textOf(o, "name")}, types.UID(textOf(o, "uid"))
		}
	}
	return nil, ""
}

func refOf(object map[string]any) Ref {
	gv, _ := schema.ParseGroupVersion(textOf(object, "apiVersion"))
	meta := child(object, "metadata")
	return Ref{Group: gv.Group, Kind: textOf(object, "kind"), Namespace: textOf(meta, "namespace"),
		Name: textOf(meta, "name")}
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
	created, said := child(l.Object, "status")["created"].(bool)
	return l.constraintTemplate() && said && !created
}

// templateWithoutAnswer reports whether Gatekeeper has not processed a ConstraintTemplate yet.
func (l *Live) templateWithoutAnswer() bool {
	_, said := child(l.Object, "status")["created"].(bool)
	return l.constraintTemplate() && !said
}

func (l *Live) constraintTemplate() bool {
	r := refOf(l.Object)
	return r.Group == GatekeeperTemplateGroup && r.Kind == KindConstraintTemplate
}

// message returns the object's own message for its state, from its history, else from its condition; "" if there is
// none.
func (l *Live) message(ref Ref, state State) string {
	status := child(l.Object, "status")
	if list, _ := status["history"].([]any); len(list) > 0 {
		if entry, ok := list[0].(map[string]any); ok {
			if said, ok := stated(textOf(entry, "message"), state); ok {
				return said
			}
		}
	}
	c := condition(status)
	if says := textOf(c, "message"); says != "" && (textOf(c, "status") == "True") == (state == Compliant) {
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
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		return errors.New("objectDefinition has no metadata")
	}
	ref := refOf(object)
	if ref.clusterScoped() {
		delete(meta, "namespace")
		return nil
	}
	meta["namespace"] = policy.Namespace
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return nil // depends on the scope of its kind
	}
	const field = "remediationAction"
	action := string(policy.Spec.RemediationAction)
	if strings.EqualFold(textOf(spec, field), "InformOnly") {
		action = string(policyv1.Inform) // inform is kept, whatever the Policy's action
	}
	if action != "" {
		spec[field] = action
	}
	return nil
}
