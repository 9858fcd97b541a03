package compliance

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// removalState is the removal state of an object of the operator.
type removalState int

const (
	// notSelected objects are of the operator, but not selected by the policy.
	notSelected removalState = iota
	// staying objects are retained.
	staying
	// going objects must be deleted; refused ones too, but an attempt failed.
	going
	refused
	// unsure objects may have to be deleted: they are reported and left unchanged.
	unsure
	// deleting objects have a deletionTimestamp and finalizers; deleted ones are gone.
	deleting
	deleted
)

// remains reports whether the object still exists and should not.
func (f removalState) remains() bool {
	return f == going || f == refused || f == unsure || f == deleting
}

// item is an object of the operator with its removal state.
type item struct {
	olm.ObjectMeta
	removalState removalState
	// why explains it if it is not obvious.
	why string
	// hasFinalizers reports that finalizers may delay the deletion.
	hasFinalizers bool
	// unrecorded reports that only the Subscription or the ClusterServiceVersion shows that it must be deleted.
	unrecorded bool
	// notMeant plans certainly install nothing that the policy matches.
	notMeant bool
	// runs is set for a plan that OLM executes.
	runs bool
}

// newItem returns an object that must be deleted, unless keep says why it is retained.
func newItem(o olm.ObjectMeta, keep string) item {
	i := item{ObjectMeta: o, removalState: going, hasFinalizers: bool(o.Finalizers)}
	switch {
	case keep != "":
		i.removalState, i.why = staying, keep
	case o.DeletionTimestamp != "":
		i.removalState = deleting
	}
	return i
}

// keptIf returns why objects of a kind are retained.
func keptIf(keep bool, field string) string {
	if !keep {
		return ""
	}
	return "spec.removalBehavior." + field + " is " + string(policyv1beta2.RemovalKeep)
}

// removalKind describes the removal of the objects of one kind.
type removalKind struct {
	*scope
	kind, conditionType string
	// next says what happens to those that are deleted.
	next string
}

// deletions returns the deletions of the items. Each has the condition after it and those before it are
// done.
func (k *removalKind) deletions(items []item) []Action {
	var actions []Action
	state := slices.Clone(items)
	for i := range state {
		if state[i].removalState != going {
			continue
		}
		failed := slices.Clone(state)
		failed[i].removalState = refused
		state[i].removalState = deleted
		if state[i].hasFinalizers {
			state[i].removalState = deleting
		}
		actions = append(actions, Action{
			Live: items[i].Reference(kinds[k.kind]),
			Done: k.condition(state),
			Failed: func(reason string) Condition {
				failed[i].why = text.Truncate(reason, foreignText)
				return k.condition(failed)
			},
		})
	}
	return actions
}

// condition summarizes the items of the kind. What is left to do takes precedence over what is done.
func (k *removalKind) condition(items []item) Condition {
	f := k.none(k.conditionType)
	has := func(states ...removalState) bool {
		return slices.ContainsFunc(items, func(i item) bool { return slices.Contains(states, i.removalState) })
	}
	clauses := k.clauses(items)
	switch {
	case has(going, refused, unsure):
		f.Reason, f.Status = k.kind+"Present", metav1.ConditionFalse
	case has(deleting):
		f.Reason, f.Status = k.kind+"Deleting", metav1.ConditionFalse
	case has(deleted):
		f.Reason = k.kind + "Deleted"
	case has(staying):
		f.Reason = k.kind + "Kept"
	case len(items) == 0:
		return f
	default: // none is selected
		clauses = slices.Insert(clauses, 0, f.Message)
	}
	f.Message, f.Related = strings.Join(clauses, "; "), nil
	for _, i := range items {
		f.Related = append(f.Related, k.describe(i))
	}
	return f
}

// clauses returns one clause for all items that share a removal state and its cause.
func (k *removalKind) clauses(items []item) []string {
	var alike [][]item
	for _, next := range items {
		n := slices.IndexFunc(alike, func(some []item) bool {
			return some[0].removalState == next.removalState && some[0].why == next.why
		})
		if n < 0 {
			n, alike = len(alike), append(alike, nil)
		}
		alike[n] = append(alike[n], next)
	}
	var clauses []string
	for _, some := range alike {
		clauses = append(clauses, k.clause(some[0], some))
	}
	return clauses
}

func (k *removalKind) clause(first item, alike []item) string {
	objects, verb := noun(k.kind, alike)
	because := ""
	if first.why != "" {
		because = ", since " + first.why
	}
	switch first.removalState {
	case staying:
		return objects + verb + "kept" + because
	case going:
		return objects + verb + "present and " + k.next + because
	case refused:
		return objects + verb + "present and cannot be deleted: " + first.why
	case unsure:
		return objects + verb + "present and not deleted" + because
	case deleting:
		return objects + verb + "still being deleted"
	case deleted:
		if len(alike) == 1 {
			return objects + " was deleted"
		}
		return objects + " were deleted"
	case notSelected:
	}
	return objects + verb + "not matched by the policy"
}

// noun returns the objects of a kind in words, and the verb that agrees with them.
func noun(kind string, items []item) (objects, verb string) {
	names := make([]string, len(items))
	for i := range items {
		names[i] = named(&items[i].ObjectMeta)
	}
	if len(names) == 1 {
		return "the " + kind + " " + names[0], " is "
	}
	return "the " + kind + "s " + text.Names(names, maxListed), " are "
}

// relatedUnsure is the reason of an object that the policy may or may not select. It differs
// from relatedNotWanted, which is recorded for later deletions.
const relatedUnsure = "Resource found but it is not known whether it should exist"

func (k *removalKind) describe(i item) policyv1beta2.RelatedObject {
	state, reason := policyv1beta2.NonCompliant, relatedNotWanted
	switch i.removalState {
	case going, refused:
	case unsure:
		reason = relatedUnsure
	case deleting:
		reason = relatedDeleting
	case deleted:
		state, reason = policyv1beta2.Compliant, relatedDeleted
	case staying:
		state, reason = "", relatedKept(k.kind)
	case notSelected:
		state, reason = policyv1beta2.Compliant, relatedFound
	}
	return k.related(k.kind, i.ObjectMeta, state, reason)
}

// none is the condition for a kind without objects to delete.
func (s *scope) none(conditionType string) Condition {
	kind := kindOf[conditionType]
	f := condition(conditionType, metav1.ConditionTrue, kind+"NotPresent",
		"no "+kind+" in namespace "+s.namespace+" matches the policy")
	o, state, reason := olm.ObjectMeta{Namespace: s.namespace, Name: noName}, policyv1beta2.Compliant, relatedAbsent
	switch kind {
	case kindSubscription:
		o.Name = s.pkg
	case kindOperatorGroup:
		if group := s.Policy.Spec.OperatorGroup; group != nil {
			o.Name = group.Name
		}
		f.Message += s.otherGroups()
	case kindInstallPlan:
		f.Reason, f.Message = "NoInstallPlansFound", "no InstallPlans of the operator are in namespace "+s.namespace
		reason = relatedNoPlans
	case kindCustomResourceDefinition:
		f.Reason, f.Message = "RelevantCRDNotFound", "no CustomResourceDefinitions of the operator were found"
		o.Namespace, state, reason = "", policyv1beta2.Inapplicable, relatedNoCRDs
	}
	f.Related = []policyv1beta2.RelatedObject{s.related(kind, o, state, reason)}
	return f
}
