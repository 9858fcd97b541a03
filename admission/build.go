package admission

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
)

// build stores a snapshot in which the namespaces that changed are new and the others those of the last one.
func (f *Feed) build(informers map[string]cache.SharedIndexInformer) {
	f.mu.Lock()
	dirty := f.dirty
	f.dirty = map[string]struct{}{}
	seen := maps.Clone(f.seen)
	completed := maps.Clone(f.completed)
	cluster, constraintsDirty := f.cluster, f.constraintsDirty
	orderDirty := f.orderDirty
	f.constraintsDirty, f.orderDirty = false, false
	f.mu.Unlock()

	next := &Snapshot{generation: 1, built: f.Now(), seen: seen, namespaces: map[string]*rules.Namespace{}}
	if last := f.Store.Load(); last != nil {
		next.generation, next.namespaces = last.generation+1, maps.Clone(last.namespaces)
		next.constraints, next.objects, next.order = last.constraints, last.objects, last.order
	}
	if orderDirty {
		next.order = orderOf(informers)
	}
	constraintsChanged := false
	if constraintsDirty {
		before := next.objects
		rebuilt := next.setConstraints(informers[resourceConstraints].GetStore(), cluster)
		if rebuilt {
			for name := range next.namespaces {
				dirty[name] = struct{}{}
			}
		}
		constraintsChanged = rebuilt || !slices.EqualFunc(before, next.objects, sameAnnotations)
	}
	f.buildNamespaces(next, informers, slices.Collect(maps.Keys(dirty)), completed)
	f.Store.current.Store(next)
	names := slices.Sorted(maps.Keys(dirty))
	f.Log.V(1).Info("snapshot built", "generation", next.generation, "namespaces", names)
	if f.Changed != nil {
		f.Changed(names)
	}
	if constraintsChanged && f.ConstraintsChanged != nil {
		f.ConstraintsChanged()
	}
	next.judgeWaiting(names)
}

// buildNamespaces puts the namespaces that changed into a snapshot.
func (f *Feed) buildNamespaces(next *Snapshot, informers map[string]cache.SharedIndexInformer, names []string, completed map[types.NamespacedName]Completion) {
	policies := f.completePolicies(informers[resourcePolicies].GetIndexer(), completed)
	for _, name := range names {
		cluster := rules.Cluster{Constraints: next.constraints}
		if slices.Contains(f.Unjudged, name) {
			cluster.Constraints = constraint.NewSet(nil, next.constraints.Cluster())
		}
		for _, src := range sources {
			held, err := informers[src.resource.Resource].GetIndexer().ByIndex(byNamespace, name)
			if err != nil {
				panic(err) // the index is made where the informer is; without it no decision could be trusted
			}
			for _, obj := range held {
				if it := obj.(*item); policies[it.key()] == nil || it.policy == nil {
					it.add(&cluster)
				}
			}
		}
		for _, p := range policies {
			if p.Concerns() == name {
				cluster.AddPolicy(p)
			}
		}
		if ns, ok := cluster.Namespaces()[name]; ok {
			next.namespaces[name] = ns
		} else {
			delete(next.namespaces, name)
		}
	}
}

// orderOf puts the Policies and PolicySets together.
func orderOf(informers map[string]cache.SharedIndexInformer) *dependency.Graph {
	var policies []*dependency.Policy
	var sets []*dependency.Set
	for _, src := range orderSources {
		for _, obj := range informers[src.resource.Resource].GetStore().List() {
			if it := obj.(*item); it.ordered != nil {
				policies = append(policies, it.ordered)
			} else if it.members != nil {
				sets = append(sets, it.members)
			}
		}
	}
	return dependency.NewGraph(policies, sets)
}

// setConstraints makes the Constraints of the cluster ready for judging, and tells whether anything that counts for that is new.
// The loop writes their status all the time: that must not cost what has been judged already.
func (s *Snapshot) setConstraints(stored cache.Store, cluster constraint.Cluster) (changed bool) {
	held := stored.List()
	slices.SortFunc(held, func(a, b any) int { return cmp.Compare(a.(*item).Name, b.(*item).Name) })
	definitions := make([]*constraint.Definition, len(held))
	objects := make([]*constraintv1.Constraint, len(held))
	for i, obj := range held {
		definitions[i], objects[i] = obj.(*item).constraint.definition, obj.(*item).constraint.object
	}
	s.objects = objects
	known := s.constraints.Cluster()
	if s.constraints != nil && known.Version == cluster.Version && known.OpenShift == cluster.OpenShift &&
		slices.EqualFunc(definitions, s.constraints.Definitions(), sameDefinition) {
		return false
	}
	s.constraints = constraint.NewSet(definitions, cluster)
	return true
}

func sameDefinition(a, b *constraint.Definition) bool {
	return a.Name == b.Name && a.UID == b.UID && a.Generation == b.Generation && a.Pending == b.Pending
}

func sameAnnotations(a, b *constraintv1.Constraint) bool {
	return a.UID == b.UID && maps.Equal(a.Annotations, b.Annotations)
}

// judgeWaiting judges the plans that wait for approval, off the request path: the Constraints remember what they have
// judged, and who approves one waits the less.
func (s *Snapshot) judgeWaiting(namespaces []string) {
	if s.constraints.Empty() {
		return
	}
	for _, name := range namespaces {
		ns := s.Namespace(name)
		for _, plan := range ns.Plans() {
			if plan.Status.Phase == olm.PhaseRequiresApproval && !plan.Spec.Approved {
				rules.JudgePlan(rules.PlanInput{Plan: plan, Namespace: ns})
			}
		}
	}
}

// completePolicies makes ready for judging what was completed, where it was completed for the policy as it
// is now. A policy that changed since stands as it was written, and so holds what it governs.
func (f *Feed) completePolicies(stored cache.Store, completed map[types.NamespacedName]Completion) map[types.NamespacedName]*rules.Policy {
	policies := make(map[types.NamespacedName]*rules.Policy, len(completed))
	made := make(map[types.NamespacedName]madePolicy, len(completed))
	for key, c := range completed {
		obj, exists, err := stored.GetByKey(key.String())
		if err != nil || !exists {
			continue
		}
		it := obj.(*item)
		op := it.policy
		if op == nil || op.UID != c.UID || op.Generation != c.Generation || rules.TemplatesEnabled(op) != rules.TemplatesEnabled(c.Policy) {
			continue
		}
		m := f.made[key]
		if m.stored != op || m.completed != c.Policy {
			now := *op // with the status of now
			now.Spec = c.Policy.Spec
			m = madePolicy{stored: op, completed: c.Policy, policy: rules.CompletedPolicy(&now, slices.Concat(c.Problems, it.faults))}
		}
		made[key], policies[key] = m, m.policy
	}
	f.made = made
	return policies
}
