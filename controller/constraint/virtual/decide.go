package virtual

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/state"
)

// Action is one write.
type Action struct {
	// Constraint is the name of the Constraint of this virtual operator. It may have been deleted.
	Constraint string
	// Object is the object to create, or the result that a patch is to have; nil to delete it. Live is the stored
	// object; nil to create it.
	Object, Live *unstructured.Unstructured
}

// Decision is what to do in a namespace.
type Decision struct {
	Actions []Action
	// Taken are the Constraints whose virtual operator cannot be created because another object has its name.
	Taken []string
}

// Decide compares the desired virtual operators of a namespace with the existing ones. Live has all objects with
// Opgate's label; an object with the name of a virtual operator but without the label is not Opgate's and is left
// unchanged.
func Decide(ns *state.Namespace, operators []*Operator, live []*unstructured.Unstructured) Decision {
	var d Decision
	if ns.Deleting() || !ns.Exists() {
		return d // its contents are deleted with it, or the namespace is not known yet
	}
	wanted := map[string]bool{}
	for _, o := range operators {
		if !o.WantedIn(ns) {
			continue
		}
		wanted[o.Name] = true
		i := slices.IndexFunc(live, func(u *unstructured.Unstructured) bool { return u.GetName() == o.Name })
		switch {
		case i >= 0 && live[i].GetDeletionTimestamp() != nil:
			// Its deletion event leads to another reconciliation, which creates a new one.
		case i >= 0:
			if corrected := o.Corrected(live[i]); corrected != nil {
				d.Actions = append(d.Actions, Action{Constraint: o.Constraint, Object: corrected, Live: live[i]})
			}
		case slices.ContainsFunc(ns.Installed(), func(c state.Installed) bool { return c.Name == o.Name }):
			d.Taken = append(d.Taken, o.Constraint)
		default:
			d.Actions = append(d.Actions, Action{Constraint: o.Constraint, Object: o.Object(ns.Name())})
		}
	}
	for _, u := range live {
		if name := ConstraintOf(u); name != "" && !wanted[u.GetName()] && u.GetDeletionTimestamp() == nil {
			d.Actions = append(d.Actions, Action{Constraint: name, Live: u})
		}
	}
	return d
}

// ConstraintOf returns the name of the Constraint that an object with Opgate's label was created for, "" for an object
// that is no virtual operator: if a user set the label while no webhook prevented it, the object must not be deleted.
func ConstraintOf(u *unstructured.Unstructured) string {
	for _, owner := range u.GetOwnerReferences() {
		if owner.Kind == constraintv1.Kind && rules.VirtualOperatorName(owner.Name) == u.GetName() {
			return owner.Name
		}
	}
	if label := u.GetLabels()[metakey.VirtualOperator]; rules.VirtualOperatorName(label) == u.GetName() {
		return label
	}
	return ""
}
