package policy

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// enqueue enqueues Policies or PolicySets.
func (r *reconciler) enqueue(of subject, keys ...types.NamespacedName) {
	for _, key := range keys {
		r.queue.Add(work{of, key})
	}
}

// notify enqueues a Policy when one of its dependencies or objects may have changed.
func (r *reconciler) notify(key types.NamespacedName) { r.enqueue(policy, key) }

// changed enqueues what changes of Policies, PolicySets and CustomResourceDefinitions affect.
func (r *reconciler) changed(change *snapshot.Change) {
	for i := range change.Objects {
		c := &change.Objects[i]
		switch c.Object().Kind() {
		case snapshot.Policies:
			r.policyChanged(c.Object().Key(), policyOf(c.Old), policyOf(c.Now))
		case snapshot.PolicySets:
			r.setChanged(c.Object().Key(), setOf(c.Old), setOf(c.Now))
		case snapshot.CustomResourceDefinitions:
			r.watches.Define(c.Old, c.Now)
		}
	}
}

func policyOf(o *snapshot.Object) *storedPolicy {
	if o == nil {
		return nil
	}
	return o.Policy()
}

func setOf(o *snapshot.Object) *storedSet {
	if o == nil {
		return nil
	}
	return o.PolicySet()
}

func (r *reconciler) policyChanged(key types.NamespacedName, old, now *storedPolicy) {
	r.Metrics.changed(key, now)
	if old == nil || now == nil || !equality.Semantic.DeepEqual(old.Object, now.Object) {
		r.enqueue(policy, key)
	}
	if old != nil && now != nil && old.Read.Observed() == now.Read.Observed() && old.Disabled() == now.Disabled() {
		return
	}
	r.enqueue(policy, r.watches.Dependents(dependency.PolicyRef(key.Namespace, key.Name))...)
	r.enqueue(set, r.members.sets(key)...)
}

func (r *reconciler) setChanged(key types.NamespacedName, old, now *storedSet) {
	r.members.change(key, now.Known())
	r.enqueue(set, key)
	if old != nil && now != nil && old.Read.Observed() == now.Read.Observed() {
		return
	}
	r.enqueue(policy, r.watches.Dependents(dependency.SetRef(key.Namespace, key.Name))...)
}
