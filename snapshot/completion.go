package snapshot

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules"
)

// Completer completes policies: template text, and what the author left to the cluster.
type Completer interface {
	// Needed reports whether the meaning of a policy depends on the cluster at all.
	Needed(op *policyv1beta2.OperatorPolicy) bool
	// Policy takes each new state of a policy and returns at once. What comes of it goes to Feed.Completed.
	Policy(op *policyv1beta2.OperatorPolicy)
	// Forget ends the work for a policy that is gone.
	Forget(key types.NamespacedName)
}

// Completion is what one state of a policy means on this cluster.
type Completion struct {
	// Generation and UID say which state of which policy this is; for any other it means nothing.
	Generation int64
	UID        types.UID
	// Policy is a copy of the policy with its spec completed as far as possible. Its status may be older than the stored one.
	Policy *policyv1beta2.OperatorPolicy
	// Problems are why the spec is not complete, as whole sentences with field paths; nil where it is. The fields that they name
	// are as they were written. While there are any the policy holds what it governs.
	Problems []string
}

// incompletePolicy is a policy whose meaning depends on the cluster.
type incompletePolicy struct {
	// stored is the policy as it is stored, placed what stands for it in the snapshot.
	stored, placed *Object
	completion     *Completion
}

// policy takes the new state of an OperatorPolicy.
func (d *draft) policy(old, now *Object) {
	key := cmp.Or(now, old).Key()
	known := d.incomplete[key]
	if known != nil {
		old = known.placed
	}
	if now == nil || !d.needed(now) {
		delete(d.incomplete, key)
		d.move(old, now)
		return
	}
	if known == nil {
		known = &incompletePolicy{}
		if d.incomplete == nil {
			d.incomplete = map[types.NamespacedName]*incompletePolicy{}
		}
		d.incomplete[key] = known
	}
	known.stored, known.placed = now, completed(now, known.completion)
	d.move(old, known.placed)
}

func (d *draft) needed(o *Object) bool {
	op := o.value.(*storedPolicy).object
	return op != nil && d.Needed != nil && d.Needed(op)
}

// complete takes what was found for a policy. It counts until the policy changes.
func (d *draft) complete(key types.NamespacedName, c *Completion) {
	known := d.incomplete[key]
	if known == nil {
		return // it is gone, or needs none any more
	}
	known.completion = c
	old := known.placed
	known.placed = completed(known.stored, c)
	d.move(old, known.placed)
}

// completed is the policy with what was found for it, where that was found for the policy as it is now. A policy that changed
// since stands as it was written, and so holds what it governs.
func completed(o *Object, c *Completion) *Object {
	stored := o.value.(*storedPolicy)
	op := stored.object
	if c == nil || op.UID != c.UID || op.Generation != c.Generation || rules.TemplatesEnabled(op) != rules.TemplatesEnabled(c.Policy) {
		return o
	}
	now := *op // with the status of now
	now.Spec = c.Policy.Spec
	p := rules.CompletedPolicy(&now, slices.Concat(c.Problems, stored.faults))
	next := *o
	next.value, next.concerns = &storedPolicy{object: op, faults: stored.faults, policy: p}, InNamespace(p.Concerns())
	return &next
}
