package virtual

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/rules"
)

// Verb is what is to be done with an object.
type Verb string

// The verbs.
const (
	Create Verb = "create"
	Patch  Verb = "patch"
	Delete Verb = "delete"
)

// Action is one write.
type Action struct {
	Verb Verb
	// Constraint is the name of the Constraint whose virtual operator this is. There may be none of that name any more.
	Constraint string
	// Object is what is to be created, or what a patch is to lead to; Live is what is stored. One that is to be deleted
	// has no Object.
	Object, Live *unstructured.Unstructured
}

// Decision is what is to be done in a namespace.
type Decision struct {
	Actions []Action
	// Taken are the Constraints whose virtual operator cannot be made, since something else has its name.
	Taken []string
}

// Decide compares the virtual operators that should be in a namespace with those that are. Live has all objects with
// Opgate's label; what has the name of a virtual operator without the label is somebody else's, and is left alone.
func Decide(ns *rules.Namespace, operators []*Operator, live []*unstructured.Unstructured) Decision {
	var d Decision
	if ns.Deleting() || ns.Facts().Unknown {
		return d // what is in it goes with it, or it is not known yet which it is
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
			// Its end wakes the loop, which then makes another.
		case i >= 0:
			if corrected := o.Corrected(live[i]); corrected != nil {
				d.Actions = append(d.Actions, Action{Verb: Patch, Constraint: o.Constraint, Object: corrected, Live: live[i]})
			}
		case slices.ContainsFunc(ns.Installed(), func(c rules.Installed) bool { return c.CSV == o.Name }):
			d.Taken = append(d.Taken, o.Constraint)
		default:
			d.Actions = append(d.Actions, Action{Verb: Create, Constraint: o.Constraint, Object: o.Object(ns.Name())})
		}
	}
	for _, u := range live {
		if name := ConstraintOf(u); name != "" && !wanted[u.GetName()] && u.GetDeletionTimestamp() == nil {
			d.Actions = append(d.Actions, Action{Verb: Delete, Constraint: name, Live: u})
		}
	}
	return d
}

// ConstraintOf gives the name of the Constraint that an object with Opgate's label was made for, "" for an object that is
// no virtual operator: one that somebody gave the label while no webhook kept them from it is not to be deleted.
func ConstraintOf(u *unstructured.Unstructured) string {
	for _, owner := range u.GetOwnerReferences() {
		if owner.Kind == constraintv1.Kind && rules.VirtualOperatorName(owner.Name) == u.GetName() {
			return owner.Name
		}
	}
	if label := u.GetLabels()[rules.VirtualOperatorLabel]; rules.VirtualOperatorName(label) == u.GetName() {
		return label
	}
	return ""
}
