package snapshot

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/opgate/opgate/internal/persistent"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// draft is a snapshot that is being built.
type draft struct {
	*Builder
	next   *Snapshot
	change *Change
	// entries are the namespaces that differ; the value reports whether to notify subscribers.
	entries map[string]*draftEntry
	cluster [kindCount]*persistent.Edit[string, *Object]
	// constraints is set if a Constraint, or a fact about the cluster, is new.
	constraints bool
	// packages are those of which the content has changed in a catalog.
	packages []string
}

type draftEntry struct {
	objects []*Object
	// judged is set if the input of judging differs, notify if anything that is read does.
	judged, notify bool
}

func (d *draft) apply(e *event) {
	switch {
	case e.synced != nil:
		d.next.synced[e.synced.index] = true
	case e.cluster != nil:
		d.versions, d.constraints = *e.cluster, true
	case e.pkg != "":
		d.packages = append(d.packages, e.pkg)
	case e.plansOf != "":
		if _, known := d.next.namespaces.Get(e.plansOf); known {
			d.rejudge(e.plansOf)
		}
	case e.completed != nil:
		d.complete(e.key, e.completed)
	default:
		d.see(e.old, e.now)
		if cmp.Or(e.now, e.old).kind == OperatorPolicies {
			d.policy(e.old, e.now)
			return
		}
		d.move(e.old, e.now)
	}
}

// see counts objects and records the newest version.
func (d *draft) see(old, now *Object) {
	o := cmp.Or(now, old)
	seen := &d.next.seen[o.kind.index]
	if old != nil {
		seen.Objects--
	}
	if now != nil {
		seen.Objects++
	}
	if seen.ResourceVersion == "" || Older(seen.ResourceVersion, o.ResourceVersion) {
		seen.ResourceVersion = o.ResourceVersion
	}
}

// move replaces the old state of an object with the new one, which may belong to another subject.
func (d *draft) move(old, now *Object) {
	notify := old == nil || now == nil || !old.kind.skipUnchanged || old.UID != now.UID ||
		old.Generation != now.Generation || !old.DeletionTimestamp.Equal(now.DeletionTimestamp) ||
		!reflect.DeepEqual(old.value, now.value)
	if old != nil && (now == nil || old.concerns != now.concerns) {
		d.take(old, notify)
	}
	if now != nil {
		d.put(now, notify)
	}
	o := cmp.Or(now, old)
	if !o.concerns.cluster {
		return
	}
	if notify {
		d.change.Objects = append(d.change.Objects, ObjectChange{old, now})
	}
	d.constraints = d.constraints || o.kind.add != nil
}

func (d *draft) put(o *Object, notify bool) {
	if o.concerns.cluster {
		d.table(o.kind).Set(o.Key().String(), o)
		return
	}
	e := d.entry(o, notify)
	if i, found := slices.BinarySearchFunc(e.objects, o, compare); found {
		e.objects[i] = o
	} else {
		e.objects = slices.Insert(e.objects, i, o)
	}
}

func (d *draft) take(o *Object, notify bool) {
	if o.concerns.cluster {
		d.table(o.kind).Remove(o.Key().String())
		return
	}
	e := d.entry(o, notify)
	if i, found := slices.BinarySearchFunc(e.objects, o, compare); found {
		e.objects = slices.Delete(e.objects, i, i+1)
	}
}

func (d *draft) table(kind *Kind) *persistent.Edit[string, *Object] {
	if d.cluster[kind.index] == nil {
		d.cluster[kind.index] = d.next.cluster[kind.index].Edit()
	}
	return d.cluster[kind.index]
}

func (d *draft) entry(o *Object, notify bool) *draftEntry {
	e := d.entryOf(o.concerns.namespace)
	e.notify = e.notify || notify
	e.judged = e.judged || o.kind.add != nil
	return e
}

func (d *draft) entryOf(namespace string) *draftEntry {
	e := d.entries[namespace]
	if e == nil {
		e = &draftEntry{}
		if last, ok := d.next.namespaces.Get(namespace); ok {
			e.objects = slices.Clone(last.objects)
		}
		d.entries[namespace] = e
	}
	return e
}

// setNamespaces writes the namespaces that changed into the snapshot.
func (d *draft) setNamespaces() {
	namespaces := d.next.namespaces.Edit()
	for name, e := range d.entries {
		switch {
		case e.notify && e.judged:
			d.change.Namespaces = append(d.change.Namespaces, name)
		case e.notify:
			d.change.Workloads = append(d.change.Workloads, name)
		}
		last, known := d.next.namespaces.Get(name)
		if !known {
			last = &entry{}
		}
		if len(e.objects) == 0 {
			d.installedGlobally(name, last.globalPackages(), nil)
			namespaces.Remove(name)
			continue
		}
		next := &entry{objects: slices.Clip(e.objects)}
		if known && !e.judged {
			next.judged = last.judged
		} else {
			next.judged = d.judged(name, e.objects)
			d.installedGlobally(name, last.globalPackages(), next.globalPackages())
		}
		namespaces.Set(name, next)
	}
	d.next.namespaces = namespaces.Next
	slices.Sort(d.change.Namespaces)
	slices.Sort(d.change.Workloads)
	slices.Sort(d.change.Packages)
	d.change.Packages = slices.Compact(d.change.Packages)
}

// judged returns the input of judging from the objects of a namespace, nil if none of them counts.
func (d *draft) judged(name string, objects []*Object) *state.Namespace {
	cluster := rules.Cluster{Facts: d.next.facts, Graph: d.next.graph, Unsuspended: d.Unsuspended}
	constraints, everywhere := d.next.constraints, d.next.everywhere
	if slices.Contains(d.Unjudged, name) {
		constraints, everywhere = constraint.NewSet(nil, d.next.facts), nil
	} else if name == "" {
		everywhere = nil // it has them already
	}
	for _, o := range objects {
		if o.kind.add != nil && o.value != nil {
			o.kind.add(&cluster, o.value)
		}
	}
	return carrier.Read(cluster.Namespace(name, constraints, everywhere), d.Packages, d.Changes)
}

// setConstraints prepares the Constraints of the cluster for judging, for all namespaces, if any input of that is new.
// The loop writes their status often: that must not discard cached results. Subscribers are not notified of facts that
// no Constraint reads.
func (d *draft) setConstraints() {
	before := d.next.constraintObjects
	d.next.constraintObjects = nil
	from := rules.Cluster{Facts: d.versions, Graph: d.next.graph, Unsuspended: d.Unsuspended}
	from.Facts.CatalogNamespaces, from.Facts.WithoutServices = d.CatalogNamespaces, d.WithoutServices
	for _, kind := range kinds {
		if kind.add == nil {
			continue
		}
		stored := d.next.Objects(kind, InCluster())
		slices.SortFunc(stored, compare)
		for _, o := range stored {
			if o.value != nil {
				kind.add(&from, o.value)
			}
			if kind == Constraints {
				d.next.constraintObjects = append(d.next.constraintObjects, o.value.(*storedConstraint).object)
			}
		}
	}
	d.change.Constraints = !sameAnnotations(before, d.next.constraintObjects)
	last := d.next.constraints
	same := last != nil && slices.EqualFunc(from.Definitions, last.Definitions(), sameDefinition)
	differ := last.Differs(&from.Facts)
	if same && differ == 0 {
		return
	}
	d.next.constraints, d.next.facts = constraint.NewSet(from.Definitions, from.Facts), from.Facts
	notify := !same || last.Reads(differ)
	d.change.Constraints = d.change.Constraints || notify
	for name, last := range d.next.namespaces.All() {
		e := d.entryOf(name)
		e.judged, e.notify = true, e.notify || notify || differ&constraint.CatalogFacts != 0 &&
			(last.judged.JudgesByCatalogImage() || last.judged.Protects())
	}
}

// setEverywhere sets the policies that hold in every namespace, which are among those that govern no single one, and
// judges all namespaces again if they changed.
func (d *draft) setEverywhere() {
	e := d.entries[""]
	if e == nil || !e.judged {
		return
	}
	var now []*operatorpolicy.Policy
	for _, o := range e.objects {
		if stored, ok := o.value.(*storedPolicy); ok && stored.policy.AnyNamespace {
			now = append(now, stored.policy)
		}
	}
	if slices.Equal(now, d.next.everywhere) {
		return
	}
	d.next.everywhere = now
	for name := range d.next.namespaces.All() {
		d.rejudge(name)
	}
}

func sameDefinition(a, b *constraint.Definition) bool {
	return a.Name == b.Name && a.UID == b.UID && a.Generation == b.Generation && a.Pending == b.Pending &&
		a.Waits == b.Waits && operatorpolicy.SameEnded(a.Exceptions, b.Exceptions)
}

// updateGraph applies changes of Policies and PolicySets to the graph.
func (d *draft) updateGraph() {
	var changes []ObjectChange
	definitions := false
	for _, c := range d.change.Objects {
		switch c.Object().kind {
		case Policies, PolicySets:
			changes = append(changes, c)
		case CustomResourceDefinitions:
			definitions = true
		}
	}
	if definitions && d.rescope() {
		for o := range d.next.AllObjects(Policies) {
			changes = append(changes, ObjectChange{Now: o})
		}
	}
	for _, c := range changes {
		o := c.Object()
		switch {
		case o.kind == Policies && c.Now != nil:
			d.next.graph = d.next.graph.WithPolicy(d.Scoped(o.Policy()))
		case o.kind == Policies:
			d.next.graph = d.next.graph.Without(dependency.PolicyRef(o.Namespace, o.Name))
		case c.Now != nil && o.PolicySet().Read != nil:
			d.next.graph = d.next.graph.WithSet(o.PolicySet().Read)
		default:
			d.next.graph = d.next.graph.Without(dependency.SetRef(o.Namespace, o.Name))
		}
	}
}

// resuspend judges again where Policies suspend something else than before, or for another reason.
func (d *draft) resuspend(before *dependency.Graph) {
	differ, hiding := map[dependency.Ref]bool{}, map[string]bool{}
	for _, c := range d.change.Objects {
		for _, o := range []*Object{c.Old, c.Now} {
			if o == nil || o.kind != Policies {
				continue
			}
			if o.Policy().graphed.HidesTemplates {
				hiding[o.Namespace] = true
			}
			for _, t := range o.Policy().graphed.Templates {
				if t.Met == "" {
					continue
				}
				was, because := before.Suspending(t.Ref)
				if is, now := d.next.graph.Suspending(t.Ref); is != was || now != because {
					differ[t.Ref] = true
					d.constraints = d.constraints || t.Ref.Kind == dependency.KindConstraint
				}
			}
		}
	}
	if len(differ)+len(hiding) == 0 {
		return
	}
	for name, last := range d.next.namespaces.All() {
		for _, o := range last.of(OperatorPolicies) {
			if differ[dependency.OperatorPolicyRef(o.Namespace, o.Name)] || hiding[o.Namespace] {
				d.rejudge(name)
			}
		}
	}
}

// rescope records which kinds are cluster-scoped, and reports whether that changed.
func (d *draft) rescope() bool {
	scoped := map[schema.GroupKind]bool{}
	for o := range d.next.AllObjects(CustomResourceDefinitions) {
		if kind := o.Definition(); kind != nil && kind.Established && !kind.Namespaced {
			scoped[kind.GroupKind()] = true
		}
	}
	changed := !maps.Equal(scoped, d.clusterScoped)
	d.clusterScoped = scoped
	return changed
}

// judgeWaiting judges the pending plans outside of the request path: the Constraints cache the results, so
// approving a plan takes less time.
func (s *Snapshot) judgeWaiting(namespaces []string) {
	if s.constraints.Empty() {
		return
	}
	for _, name := range namespaces {
		ns := s.Namespace(name)
		for _, plan := range ns.Plans() {
			if plan.AwaitsApproval() {
				rules.JudgePlan(rules.PlanInput{Plan: plan, Namespace: ns})
			}
		}
	}
}
