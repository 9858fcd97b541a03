// Package watches watches the objects that Policies depend on, and those that are made of their templates.
//
// All dependencies of a kind in a namespace share one watch, however many Policies depend on them. Other objects that
// it returns are not stored; a single object is selected by its name, so that nothing else of its kind is read. Package
// rules/dependency (Budget) limits the number of watches. Objects made of templates are covered by one watch per kind,
// selected by their label. Kinds come from the CustomResourceDefinitions in the snapshot, so that a kind that is added,
// changed or deleted is noticed as well. No watch depends on another: a kind that is missing or forbidden reports so
// and blocks no other kind. Only forbidden watches are retried, with exponential backoff.
package watches

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// Options configure Watches.
type Options struct {
	// Client lists and watches. Required.
	Client dynamic.Interface
	// Notify is called with each owner whose observed state may have changed. It must not block, must be safe for
	// concurrent use, and may call the Watches. Required.
	Notify func(owner types.NamespacedName)
	// Gatekeeper allows Gatekeeper's kinds in templates. Default: not allowed, whatever their definitions declare.
	Gatekeeper bool
	// Backoff is the first delay before a forbidden watch is retried; it doubles up to ten minutes. Default: 30 s.
	Backoff time.Duration
	// Log receives which watches are forbidden, and which are allowed again, at V(0). Default: none.
	Log logr.Logger
}

// Watches watches objects. It is safe for concurrent use; nothing is read before Start.
type Watches struct {
	Options
	kinds *Kinds
	// changed is notified of everything that is read of template objects.
	changed signal.Signal

	mu sync.Mutex
	// run runs a watch until it is stopped; nil while the Watches do not run.
	run     func(*watch)
	targets map[Target]*target
	// owners has the targets of each owner.
	owners map[types.NamespacedName]map[Target]*target
	// groups are the dependencies by kind and namespace, templates the template objects by kind.
	groups    map[watchKey]*group
	templates map[schema.GroupKind]*watch
}

// Target is an object that an owner depends on or has a template of.
type Target struct {
	dependency.Ref
	// Version is the required version of the object; "" is any. The object is read in its storage version.
	Version string
	// Template marks an object made of a template of the owner. It is covered by the watch for all template objects of
	// its kind. The owner is notified when the kind appears, changes or disappears, and when its objects have been read
	// or are forbidden; changes of the object itself notify the Policy in its labels.
	Template bool
}

func (t *Target) kind() schema.GroupKind { return schema.GroupKind{Group: t.Group, Kind: t.Kind} }

// target is a Target that at least one owner has set.
type target struct {
	Target
	owners owners
	// group is the group whose watch covers it, nil for none.
	group *group
}

// owners is a set of owners to notify.
type owners map[types.NamespacedName]struct{}

// addParents adds the Policies of template objects.
func (o owners) addParents(objects ...*unstructured.Unstructured) {
	for _, object := range objects {
		if parent, ok := parentOf(object); ok {
			o[parent] = struct{}{}
		}
	}
}

// New returns Watches. Start runs them.
func New(o Options) *Watches {
	if o.Backoff == 0 {
		o.Backoff = 30 * time.Second
	}
	return &Watches{Options: o, kinds: NewKinds(o), targets: map[Target]*target{},
		owners: map[types.NamespacedName]map[Target]*target{},
		groups: map[watchKey]*group{}, templates: map[schema.GroupKind]*watch{}}
}

// Start watches the targets until the context ends, and returns when all watches have stopped. It may be called once.
func (w *Watches) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	w.setRun(func(f *watch) {
		var own context.Context
		own, f.stop = context.WithCancel(ctx)
		running.Go(func() { f.run(own) })
	})
	defer w.setRun(nil) // before the wait, so that no watch is added to the group that is waited for
	for _, kind := range w.kinds.groupKinds() {
		w.settle(kind)
	}
	<-ctx.Done()
	return nil
}

func (w *Watches) setRun(run func(*watch)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run = run
}

// Changed is notified of everything that is read of template objects, for those that wait for their own writes.
func (w *Watches) Changed() *signal.Signal { return &w.changed }

// Kinds returns the kinds of the cluster.
func (w *Watches) Kinds() *Kinds { return w.kinds }

// Open returns the number of watches on dependencies.
func (w *Watches) Open() (open int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.groups {
		for _, f := range g.watches() {
			if f != nil {
				open++
			}
		}
	}
	return open
}

// Set sets the targets of an owner, in place of its previous ones; an empty list removes the owner. Policies and
// PolicySets may be among them, for Dependents, but are not watched here.
func (w *Watches) Set(owner types.NamespacedName, targets []Target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := make(map[Target]*target, len(targets))
	for _, wanted := range targets { // added before others are removed: watches that both need continue
		t := w.targets[wanted]
		if t == nil {
			t = &target{Target: wanted, owners: owners{}}
			w.targets[wanted] = t
			w.open(t)
		}
		t.owners[owner] = struct{}{}
		now[wanted] = t
	}
	for wanted, t := range w.owners[owner] {
		if now[wanted] != nil {
			continue
		}
		if delete(t.owners, owner); len(t.owners) == 0 {
			w.close(t)
			delete(w.targets, wanted)
		}
	}
	if w.owners[owner] = now; len(now) == 0 {
		delete(w.owners, owner)
	}
}

// Dependents returns the owners that depend on an object in any version, without those that have it as a template.
func (w *Watches) Dependents(ref dependency.Ref) []types.NamespacedName {
	return slices.Collect(maps.Keys(w.ownersOf(func(t *target) bool { return t.Ref == ref && !t.Template })))
}

// ownersOf returns the owners of some targets.
func (w *Watches) ownersOf(some func(*target) bool) owners {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := owners{}
	for _, t := range w.targets {
		if some(t) {
			maps.Copy(all, t.owners)
		}
	}
	return all
}

func (w *Watches) notify(notified owners) {
	for owner := range notified {
		w.Notify(owner)
	}
}

// Define applies a CustomResourceDefinition that was added (old is nil), changed or deleted (now is nil). A kind that
// is not defined counts as not served. What was forbidden is tried again at once.
func (w *Watches) Define(old, now *snapshot.Object) {
	for _, kind := range w.kinds.replace(definitionOf(old), definitionOf(now)) {
		w.settle(kind)
	}
	d := definitionOf(now)
	if old == nil || d == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for s, g := range w.groups {
		if s.resource.GroupResource() == (schema.GroupResource{Group: d.Group, Resource: d.Plural}) {
			g.current.retry() // nil does nothing
			g.next.retry()
		}
	}
	w.templates[d.GroupKind()].retry()
}

// settle opens and closes the watches of a kind as needed, and notifies the owners that depend on an object of that
// kind or have a template of it.
func (w *Watches) settle(kind schema.GroupKind) {
	w.mu.Lock()
	for _, t := range w.targets {
		if t.kind() == kind {
			w.open(t)
		}
	}
	before := w.templates[kind]
	w.openTemplates(kind)
	w.mu.Unlock()
	notified := w.ownersOf(func(t *target) bool { return t.kind() == kind })
	if before != nil {
		notified.addParents(before.known.Load().all()...)
	}
	w.notify(notified)
}
