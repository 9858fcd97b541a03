// Package snapshot is the only store of the process: admission judges by it and controllers work on it.
//
// A declared table (Kinds) names each kind that is watched, how its objects are decoded, which subject they belong to
// (a namespace or the cluster), what replaces an object that does not decode, and who reads it: every replica or only
// the leader. Feed watches these kinds; a builder turns their events into immutable Snapshots, of which the Store holds
// the current one. A snapshot shares all that did not change with the previous one: the cost of an event is that of its
// subject.
//
// After a write call Store.Wait, so that nothing is decided on a state from before that write.
package snapshot

import (
	"iter"
	"maps"
	"slices"
	"sort"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/persistent"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// Snapshot is the observed state of the cluster at one time. It is immutable: it is read without locks while the
// feed builds the next one.
type Snapshot struct {
	namespaces *persistent.Map[string, *entry]
	// global are, by package, the namespaces with a ClusterServiceVersion of it and an OperatorGroup for all namespaces.
	global *persistent.Map[string, []string]
	// cluster has the objects of each kind that belong to the cluster, by namespace/name.
	cluster [kindCount]*persistent.Map[string, *Object]
	// constraints are in every namespace as well; constraintObjects are their stored objects, sorted by name.
	constraints       *constraint.Set
	facts             facts.Cluster
	constraintObjects []*constraintv1.Constraint
	// everywhere are the policies that hold what they govern in every namespace, since theirs cannot be read.
	everywhere []*operatorpolicy.Policy
	// graph is the dependency graph; nil if no Policy is known.
	graph *dependency.Graph
	// generation is the number of the snapshot in this process, from 1.
	generation uint64
	built      time.Time
	seen       [kindCount]Seen
	synced     [kindCount]bool
}

// entry is the observed state of one namespace.
type entry struct {
	// judged is nil if nothing counts for judging.
	judged *state.Namespace
	// objects are sorted by kind, namespace and name.
	objects []*Object
}

// of returns the objects of a kind. They must not be modified.
func (e *entry) of(kind *Kind) []*Object {
	if e == nil {
		return nil
	}
	at := func(index int) int {
		return sort.Search(len(e.objects), func(i int) bool { return e.objects[i].kind.index >= index })
	}
	return e.objects[at(kind.index):at(kind.index+1):at(kind.index+1)]
}

// Seen reports how far a snapshot has followed one kind.
type Seen struct {
	// ResourceVersion is the newest that the snapshot includes, "" if it includes no object.
	ResourceVersion string
	// Objects is the number of existing objects of the kind.
	Objects int
}

// Namespace returns the observed state of a namespace; nil, which rules read as an empty one, if nothing is known and
// no Constraint applies, and no policy to every namespace.
func (s *Snapshot) Namespace(name string) *state.Namespace {
	if e, ok := s.namespaces.Get(name); ok && e.judged != nil {
		return e.judged
	}
	// Constraints on CatalogSources or OperatorGroups alone count as well.
	if len(s.constraints.Definitions()) == 0 && len(s.everywhere) == 0 {
		return nil
	}
	return state.NewNamespace(name, state.NamespaceContents{Constraints: s.constraints, Policies: s.everywhere})
}

// All yields every known namespace, sorted by name.
func (s *Snapshot) All() iter.Seq[*state.Namespace] {
	return func(yield func(*state.Namespace) bool) {
		for _, name := range s.names() {
			if e, _ := s.namespaces.Get(name); e.judged != nil && !yield(e.judged) {
				return
			}
		}
	}
}

func (s *Snapshot) names() []string {
	var names []string
	for name := range s.namespaces.All() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Objects returns the objects of a kind that belong to a subject; those of a namespace are sorted by namespace and
// name. They must not be modified.
func (s *Snapshot) Objects(kind *Kind, concern Subject) []*Object {
	if concern.cluster {
		var all []*Object
		for _, o := range s.cluster[kind.index].All() {
			all = append(all, o)
		}
		return all
	}
	e, _ := s.namespaces.Get(concern.namespace)
	return e.of(kind)
}

// AllObjects yields all objects of a kind, grouped by namespace if they belong to namespaces. They must not be modified.
func (s *Snapshot) AllObjects(kind *Kind) iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		for _, o := range s.cluster[kind.index].All() {
			if !yield(o) {
				return
			}
		}
		if kind.subject(types.NamespacedName{}).cluster {
			return // none in the namespaces, of which there may be many
		}
		for _, e := range s.namespaces.All() {
			for _, o := range e.of(kind) {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// Object returns an object of a kind that belongs to a subject, nil if there is none.
func (s *Snapshot) Object(kind *Kind, concern Subject, key types.NamespacedName) *Object {
	if concern.cluster {
		o, _ := s.cluster[kind.index].Get(key.String())
		return o
	}
	objects := s.Objects(kind, concern)
	named := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
	i, found := slices.BinarySearchFunc(objects, &Object{kind: kind, ObjectMeta: named}, compare)
	if !found {
		return nil
	}
	return objects[i]
}

// NamespaceAnnotations returns the annotations opgate.io/... of a namespace. They must not be modified.
func (s *Snapshot) NamespaceAnnotations(name string) map[string]string {
	if n := valueIn[*metav1.ObjectMeta](s.Find(Namespaces, types.NamespacedName{Name: name})); n != nil {
		return n.Annotations
	}
	return nil
}

// Policy returns a Policy, nil if there is none. It must not be modified.
func (s *Snapshot) Policy(key types.NamespacedName) *Policy {
	return valueIn[*Policy](s.Find(Policies, key))
}

// PolicySet returns a PolicySet, nil if there is none. It must not be modified.
func (s *Snapshot) PolicySet(key types.NamespacedName) *PolicySet {
	return valueIn[*PolicySet](s.Find(PolicySets, key))
}

// OperatorPolicy returns an OperatorPolicy as it is stored, with the namespace in which it governs something, nil if it
// does not exist or does not decode.
func (s *Snapshot) OperatorPolicy(governs string, key types.NamespacedName) *policyv1beta2.OperatorPolicy {
	if stored := valueIn[*storedPolicy](s.Object(OperatorPolicies, InNamespace(governs), key)); stored != nil {
		return stored.object
	}
	return nil
}

// Graph returns the dependency graph; nil if no Policy is known.
func (s *Snapshot) Graph() *dependency.Graph { return s.graph }

// Facts returns what is known of the cluster. It must not be modified.
func (s *Snapshot) Facts() *facts.Cluster { return &s.facts }

// Constraints returns those of the cluster, prepared for judging.
func (s *Snapshot) Constraints() *constraint.Set { return s.constraints }

// ConstraintObjects returns the stored Constraints, sorted by name. They must not be modified.
func (s *Snapshot) ConstraintObjects() []*constraintv1.Constraint { return s.constraintObjects }

// Governed lists the namespaces that policies govern, sorted; it contains "" if some govern nothing yet.
func (s *Snapshot) Governed() []string {
	var names []string
	for ns := range s.All() {
		if len(ns.Policies()) > 0 {
			names = append(names, ns.Name())
		}
	}
	return names
}

// Built returns when the snapshot was built.
func (s *Snapshot) Built() time.Time { return s.built }

// Synced reports whether all objects of kinds have been listed once.
func (s *Snapshot) Synced(kinds ...*Kind) bool {
	return !slices.ContainsFunc(kinds, func(k *Kind) bool { return !s.synced[k.index] })
}

// sameAnnotations reports whether two lists have the same Constraints with the same annotations.
func sameAnnotations(a, b []*constraintv1.Constraint) bool {
	return slices.EqualFunc(a, b, func(a, b *constraintv1.Constraint) bool {
		return a.UID == b.UID && maps.Equal(a.Annotations, b.Annotations)
	})
}

// Find returns an object by its name alone, nil if there is none. It does not find OperatorPolicies.
func (s *Snapshot) Find(kind *Kind, key types.NamespacedName) *Object {
	return s.Object(kind, kind.subject(key), key)
}

// Shows reports whether a snapshot shows a write: the object at least in the returned version or, if it was deleted,
// that it is gone or being deleted.
func (s *Snapshot) Shows(kind *Kind, written metav1.Object, deleted bool) bool {
	now := s.Find(kind, types.NamespacedName{Namespace: written.GetNamespace(), Name: written.GetName()})
	if deleted {
		return now == nil || now.UID != written.GetUID() || now.DeletionTimestamp != nil
	}
	return now != nil && !Older(now.ResourceVersion, written.GetResourceVersion())
}

// Packages returns packages of catalogs without waiting for them; *packages.Cache implements it.
type Packages interface {
	Version(pkg, csv string, source olm.Catalog) *catalog.Package
	// CatalogChanged is called when a CatalogSource has changed.
	CatalogChanged(source olm.Catalog)
}

// PackageChanged is called when the content of a package has changed in a catalog.
func (f *Feed) PackageChanged(pkg string) {
	if f.Completer != nil {
		f.Completer.PackageChanged(pkg)
	}
	f.happened(event{pkg: pkg})
}

// ContentsChanged is called when it is known what a plan of a namespace changes, or that it changes something else.
func (f *Feed) ContentsChanged(namespace string) { f.happened(event{plansOf: namespace}) }

// catalogsChanged makes every replica follow the catalogs, since every replica judges by them.
func (f *Feed) catalogsChanged(change *Change) {
	if f.Packages == nil {
		return
	}
	for i := range change.Objects {
		if o := change.Objects[i].Object(); o.kind == CatalogSources {
			f.Packages.CatalogChanged(olm.Catalog{Namespace: o.Namespace, Name: o.Name})
		}
	}
}

// rejudgePackages judges again the namespaces that judge by packages that changed.
func (d *draft) rejudgePackages() {
	if len(d.packages) == 0 {
		return
	}
	d.change.Packages = append(d.change.Packages, d.packages...)
	for name, e := range d.next.namespaces.All() {
		if slices.ContainsFunc(d.packages, e.judged.JudgesByPackage) {
			d.rejudge(name)
		}
	}
}

// InstalledGlobally returns the sorted namespaces in which a package is installed for all. They must not be modified.
func (s *Snapshot) InstalledGlobally(pkg string) []string {
	namespaces, _ := s.global.Get(pkg)
	return namespaces
}

// InstalledElsewhere reports whether another namespace has a package installed for all namespaces.
func (s *Snapshot) InstalledElsewhere(pkg, namespace string) bool {
	return slices.ContainsFunc(s.InstalledGlobally(pkg), func(name string) bool { return name != namespace })
}

// Copied reports whether OLM has copied a ClusterServiceVersion of a package to a namespace, from one in which it is
// installed for others as well. A user of the namespace sees the copy; that another namespace has the package is no
// fact of theirs.
func (s *Snapshot) Copied(pkg, namespace string) bool {
	return slices.ContainsFunc(s.Objects(ClusterServiceVersions, InNamespace(namespace)), func(o *Object) bool {
		return o.Copied() && o.CSV().Bundle.Package == pkg
	})
}

// globalPackages returns the packages, sorted, that are installed in a namespace for all namespaces.
func (e *entry) globalPackages() []string {
	if olm.ScopeOf(e.judged.Groups()) != olm.ScopeCluster {
		return nil
	}
	var packages []string
	for _, csv := range e.judged.CSVs() {
		if state.InstallsOperator(csv) && csv.Bundle.Package != "" {
			packages = append(packages, csv.Bundle.Package)
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}

// installedGlobally records the packages that a change installs for all namespaces, or does not any more.
func (d *draft) installedGlobally(name string, before, after []string) {
	for _, pkg := range slices.Concat(before, after) {
		is := slices.Contains(after, pkg)
		if is == slices.Contains(before, pkg) {
			continue
		}
		d.change.Packages = append(d.change.Packages, pkg)
		namespaces := slices.DeleteFunc(slices.Clone(d.next.InstalledGlobally(pkg)),
			func(other string) bool { return other == name })
		if is {
			namespaces = append(namespaces, name)
			slices.Sort(namespaces)
		}
		edit := d.next.global.Edit()
		edit.Set(pkg, namespaces)
		d.next.global = edit.Next
	}
}
