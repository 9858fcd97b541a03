package snapshot

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// Completer completes policies: template text, and fields that the author omitted.
type Completer interface {
	// Needed reports whether a policy depends on the cluster at all.
	Needed(op *policyv1beta2.OperatorPolicy) bool
	// Policy is called with each new state of a policy and must not block. The result is passed to Feed.Completed.
	Policy(op *policyv1beta2.OperatorPolicy)
	// Forget ends the work for a deleted policy.
	Forget(key types.NamespacedName)
	// PackageChanged is called when the content of a package has changed in a catalog. It must not block.
	PackageChanged(pkg string)
}

// Completion is the result of completing one state of a policy on this cluster.
type Completion struct {
	// Generation and UID identify the state and the policy; it does not count for any other.
	Generation int64
	UID        types.UID
	// Policy is a copy of the policy with its spec completed as far as possible. Its status may be older than the
	// stored one.
	Policy *policyv1beta2.OperatorPolicy
	// Problems are why the spec is not complete, as complete sentences with field paths; nil if it is. The fields that
	// they name are as they were written. With any problem the policy holds what it governs.
	Problems []string
}

// incompletePolicy is a policy that depends on the cluster.
type incompletePolicy struct {
	// stored is the policy as it is stored, placed the object that represents it in the snapshot.
	stored, placed *Object
	completion     *Completion
}

// policy applies a new state of an OperatorPolicy.
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
	stored := o.value.(*storedPolicy)
	return stored.object != nil && !stored.policy.AnyNamespace && d.Needed != nil && d.Needed(stored.object)
}

// complete applies a completion of a policy. It counts until the policy changes.
func (d *draft) complete(key types.NamespacedName, c *Completion) {
	known := d.incomplete[key]
	if known == nil {
		return // the policy was deleted, or needs none any more
	}
	known.completion = c
	old := known.placed
	known.placed = completed(known.stored, c)
	d.move(old, known.placed)
}

// completed returns the policy with its completion, if that was made for its present state. A policy that changed
// since is used as it was written, and so holds what it governs.
func completed(o *Object, c *Completion) *Object {
	stored := o.value.(*storedPolicy)
	op := stored.object
	if c == nil || op.UID != c.UID || op.Generation != c.Generation ||
		operatorpolicy.TemplatesEnabled(op) != operatorpolicy.TemplatesEnabled(c.Policy) {
		return o
	}
	now := *op // with the present status
	now.Spec = c.Policy.Spec
	p := rules.CompletedOperatorPolicy(stored.policy, &now, slices.Concat(c.Problems, stored.faults))
	next := *o
	next.value, next.concerns = &storedPolicy{object: op, faults: stored.faults, policy: p}, InNamespace(p.Concerns())
	return &next
}
