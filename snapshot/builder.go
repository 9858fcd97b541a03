package snapshot

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// Change is the difference between a snapshot and the previous one.
type Change struct {
	Snapshot *Snapshot
	// Namespaces are those that differ, sorted; "" stands for the policies that govern nothing yet.
	Namespaces []string
	// Workloads are those in which only kinds that the leader alone reads differ, sorted.
	Workloads []string
	// Packages are those whose content has changed in a catalog, or that are installed for all namespaces in other
	// namespaces than before, sorted.
	Packages []string
	// Constraints is set if Constraints, their annotations, or the cluster versions differ.
	Constraints bool
	// Objects are those in cluster scope that differ, in the order of their events.
	Objects []ObjectChange
}

// ObjectChange is an object that was added (Old is nil), changed, or deleted (Now is nil).
type ObjectChange struct{ Old, Now *Object }

// Object returns the new state, or the last one of a deleted object.
func (c *ObjectChange) Object() *Object { return cmp.Or(c.Now, c.Old) }

// fromNothing returns the change from an empty snapshot, without objects, to this one.
func (s *Snapshot) fromNothing() *Change {
	all := &Change{Snapshot: s, Namespaces: s.names(), Constraints: true}
	for _, table := range s.cluster {
		for _, o := range table.All() {
			all.Objects = append(all.Objects, ObjectChange{Now: o})
		}
	}
	return all
}

// event is one input of the builder.
type event struct {
	// old and now are the states of an object; one of them may be nil.
	old, now *Object
	// completed is the completion of the policy key.
	completed *Completion
	key       types.NamespacedName
	// cluster has the cluster versions.
	cluster *facts.Cluster
	// pkg is a package of which the content has changed in a catalog.
	pkg string
	// plansOf is a namespace of which a plan changes something else than before.
	plansOf string
	// synced is a kind of which all objects have been read.
	synced *Kind
}

// Builder builds snapshots from events. It is not safe for concurrent use.
type Builder struct {
	// Unjudged are namespaces that the webhook configurations exclude: no Constraint counts there, since it would not
	// be enforced. Default: none.
	Unjudged []string
	// Needed reports whether a policy depends on the cluster. Default: none does.
	Needed func(*policyv1beta2.OperatorPolicy) bool
	// Unsuspended is set where the statuses of Policies say nothing: these suspend nothing then. Default: they do.
	Unsuspended bool
	// Packages are those of catalogs. Default: none is known.
	Packages state.Packages
	// Changes are what plans change. Default: none is known.
	Changes state.Changes
	// CatalogNamespaces are those in which pods and Services of catalogs are watched. Default: all.
	CatalogNamespaces []string
	// WithoutServices is set where OLM has written nothing: a Service that is not known is as OLM makes it. Default: it
	// does not exist.
	WithoutServices bool

	last *Snapshot
	// incomplete are the policies that depend on the cluster.
	incomplete map[types.NamespacedName]*incompletePolicy
	// clusterScoped are the kinds that are known to be cluster-scoped.
	clusterScoped map[schema.GroupKind]bool
	versions      facts.Cluster
}

// Put adds or replaces objects and returns a new snapshot.
func (b *Builder) Put(now time.Time, objects ...*Object) *Snapshot {
	events := make([]event, len(objects))
	for i, o := range objects {
		events[i] = event{now: o}
	}
	next, _ := b.build(now, events)
	return next
}

// Remove removes objects and returns a new snapshot.
func (b *Builder) Remove(now time.Time, objects ...*Object) *Snapshot {
	events := make([]event, len(objects))
	for i, o := range objects {
		events[i] = event{old: o}
	}
	next, _ := b.build(now, events)
	return next
}

// SetCluster sets the cluster versions and returns a new snapshot.
func (b *Builder) SetCluster(now time.Time, c facts.Cluster) *Snapshot {
	next, _ := b.build(now, []event{{cluster: &c}})
	return next
}

// Complete sets what policies are completed to, which counts for their present state, and returns a new snapshot. The
// policies have been put before.
func (b *Builder) Complete(now time.Time, completions map[types.NamespacedName]*Completion) *Snapshot {
	events := make([]event, 0, len(completions))
	for key, c := range completions {
		events = append(events, event{key: key, completed: c})
	}
	next, _ := b.build(now, events)
	return next
}

// build applies events to the last snapshot.
func (b *Builder) build(now time.Time, events []event) (*Snapshot, *Change) {
	d := &draft{Builder: b, next: &Snapshot{generation: 1}, change: &Change{}, entries: map[string]*draftEntry{},
		constraints: b.last == nil}
	if b.last != nil {
		*d.next = *b.last
		d.next.generation++
	}
	d.next.built, d.change.Snapshot = now, d.next
	for i := range events {
		d.apply(&events[i])
	}
	for i, e := range d.cluster {
		if e != nil {
			d.next.cluster[i] = e.Next
		}
	}
	before := d.next.graph
	d.updateGraph()
	d.resuspend(before)
	if d.constraints {
		d.setConstraints()
	}
	d.setEverywhere()
	d.rejudgePackages()
	d.setNamespaces()
	b.last = d.next
	return d.next, d.change
}

// rejudge judges a namespace again, and notifies of it.
func (d *draft) rejudge(namespace string) {
	e := d.entryOf(namespace)
	e.judged, e.notify = true, true
}

// Scoped returns a parsed Policy, with namespaces only for namespaced kinds, as far as these are known: only the leader
// reads CustomResourceDefinitions.
func (b *Builder) Scoped(p *Policy) *dependency.Policy {
	if len(b.clusterScoped) == 0 || p.Object == nil {
		return p.graphed
	}
	return p.graphed.Scoped(p.Object, func(group, kind string) bool {
		return b.clusterScoped[schema.GroupKind{Group: group, Kind: kind}]
	})
}

// Completer completes policies: template text, and fields that the author omitted.
type Completer interface {
	// Policy is called with each new state of a policy and must not block. The result is passed to Feed.Completed.
	Policy(op *policyv1beta2.OperatorPolicy)
	// Forget ends the work for a deleted policy.
	Forget(key types.NamespacedName)
	// PackageChanged is called when the content of a package has changed in a catalog. It must not block.
	PackageChanged(pkg string)
}

// Completion is the result of completing one state of a policy on this cluster.
type Completion struct {
	// Policy is a copy of the policy with its spec completed as far as possible. It counts only for the same UID and
	// generation. Its status may be older than the stored one. It must not be modified.
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
	if c == nil || op.UID != c.Policy.UID || op.Generation != c.Policy.Generation ||
		operatorpolicy.TemplatesEnabled(op) != operatorpolicy.TemplatesEnabled(c.Policy) {
		return o
	}
	now := *op // with the present status
	now.Spec = c.Policy.Spec
	p := stored.policy.Completed(&now, slices.Concat(c.Problems, stored.faults))
	next := *o
	next.value, next.concerns = &storedPolicy{object: op, faults: stored.faults, policy: p}, InNamespace(p.Concerns())
	return &next
}
