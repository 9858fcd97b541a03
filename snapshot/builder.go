package snapshot

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/facts"
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

// Scoped returns a parsed Policy, with namespaces only for namespaced kinds, as far as these are known: only the leader
// reads CustomResourceDefinitions.
func (b *Builder) Scoped(read *dependency.Policy) *dependency.Policy {
	if len(b.clusterScoped) == 0 {
		return read
	}
	return read.Scoped(func(group,
		kind string) bool {
		return b.clusterScoped[schema.GroupKind{Group: group, Kind: kind}]
	})
}
