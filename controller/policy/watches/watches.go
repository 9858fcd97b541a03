// Package watches watches the objects that Policies depend on, and those that are made of their templates.
//
// All dependencies of a kind in a namespace share one informer, however many Policies. Other objects that it reads are
// not stored. It is stopped when nothing depends on the kind there; one with more names replaces it once it has read
// them. Their number is limited (limits.go). Objects made of templates are covered by one
// informer per kind, selected by their label. Kinds come from the CustomResourceDefinitions in the snapshot, so that a
// kind that is added, changed or deleted is noticed. No watch depends on another: a kind that is missing or forbidden
// reports so and blocks no other kind. Only forbidden watches are retried, with exponential backoff.
package watches

import (
	"cmp"
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
	// changed is notified of everything that is read of template objects.
	changed signal.Signal

	mu sync.Mutex
	// run runs a watch until it is stopped; nil while the Watches do not run.
	run   func(*watch)
	kinds kinds
	// owners are those with targets. beyond is what exceeds the limits.
	owners map[types.NamespacedName]*owner
	beyond map[share]bool
	// watches are those on dependencies, templates those on objects of templates.
	watches   map[watchKey]*watch
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

// owner is a Policy with its targets.
type owner struct {
	name types.NamespacedName
	// created is the creation time: older Policies take precedence.
	created time.Time
	targets []Target
	// watches are what has to be watched, as in share, sorted. Policies and PolicySets need no watch.
	watches []dependency.Ref
}

func newOwner(name types.NamespacedName, created time.Time, targets []Target) *owner {
	o := &owner{name: name, created: created, targets: targets}
	for _, t := range targets {
		if !t.Template && !t.IsPolicy() && !t.IsSet() {
			o.watches = append(o.watches, shareOf(name, t.Ref).watch)
		}
	}
	slices.SortFunc(o.watches, dependency.Ref.Compare)
	o.watches = slices.Compact(o.watches)
	return o
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
	return &Watches{Options: o, kinds: kinds{}, owners: map[types.NamespacedName]*owner{},
		watches: map[watchKey]*watch{}, templates: map[schema.GroupKind]*watch{}}
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
	w.mu.Lock()
	served := slices.Collect(maps.Keys(w.kinds))
	w.mu.Unlock()
	for _, kind := range served {
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

// Open returns the number of watches on dependencies.
func (w *Watches) Open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watches)
}

// Set sets the targets of an owner, in place of its previous ones; an empty list removes the owner. Created is when the
// owner was created. Policies and PolicySets may be among the targets, for Dependents, but are not watched here. The
// other owners whose watches change are notified.
func (w *Watches) Set(name types.NamespacedName, created time.Time, targets []Target) {
	now := newOwner(name, created, targets)
	w.mu.Lock()
	before := w.owners[name]
	if w.owners[name] = now; len(targets) == 0 {
		delete(w.owners, name)
	}
	if before == nil {
		before = &owner{}
	}
	notified := owners{}
	if !slices.Equal(before.watches, now.watches) || len(now.watches) > 0 && !before.created.Equal(created) {
		notified = w.ration()
		delete(notified, name)
	}
	w.follow(name)
	w.mu.Unlock()
	w.notify(notified)
}

// exceeds reports whether a target is not watched for an owner, since it exceeds the limits.
func (w *Watches) exceeds(owner types.NamespacedName, t Target) bool {
	return !t.Template && w.beyond[shareOf(owner, t.Ref)]
}

// follow opens the watches that the targets of an owner need according to the present definitions, and stops those that
// no owner needs any more. What is not served, or cannot exist, is not watched.
func (w *Watches) follow(name types.NamespacedName) {
	needed := map[*watch]bool{}
	var targets []Target
	if o := w.owners[name]; o != nil && w.run != nil {
		targets = o.targets
	}
	for _, t := range targets {
		d := w.kinds[t.kind()]
		if d == nil || t.Template || t.IsPolicy() || t.IsSet() || !serves(d, t.Version) || !possible(d, t.Ref) ||
			w.exceeds(name, t) {
			continue
		}
		key := keyOf(d, t.Namespace)
		f := w.watches[key]
		if f == nil {
			f = w.newWatch(key, map[string]struct{}{})
			f.onChange = func(*watchState) { w.notifyAll(f) }
			f.onObject = func(old, now *unstructured.Unstructured) { w.notifyDependents(f, cmp.Or(now, old)) }
			w.watches[key] = f
			w.run(f)
		}
		if _, ok := f.names[t.Name]; !ok {
			f.names[t.Name] = struct{}{}
			signal.Put(f.again)
		}
		f.owners[name], needed[f] = struct{}{}, true
	}
	for key, f := range w.watches {
		if _, ok := f.owners[name]; !ok || needed[f] {
			continue
		}
		if delete(f.owners, name); len(f.owners) == 0 {
			f.stop()
			delete(w.watches, key)
		}
	}
}

// Dependents returns the owners that depend on an object in any version, without those that have it as a template.
func (w *Watches) Dependents(ref dependency.Ref) []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.ownersWith(func(t Target) bool { return t.Ref == ref && !t.Template })))
}

// ownersWith returns the owners that have such a target.
func (w *Watches) ownersWith(is func(Target) bool) owners {
	all := owners{}
	for name, o := range w.owners {
		if slices.ContainsFunc(o.targets, is) {
			all[name] = struct{}{}
		}
	}
	return all
}

func (w *Watches) notify(notified owners) {
	for owner := range notified {
		w.Notify(owner)
	}
}

// notifyAll notifies the owners of a watch.
func (w *Watches) notifyAll(f *watch) {
	w.mu.Lock()
	notified := maps.Clone(f.owners)
	w.mu.Unlock()
	w.notify(notified)
}

// notifyDependents notifies the owners that depend on an object of a watch.
func (w *Watches) notifyDependents(f *watch, object *unstructured.Unstructured) {
	changed := dependency.RefOf(object)
	w.mu.Lock()
	notified := w.ownersWith(func(t Target) bool {
		if !f.namespaced {
			t.Namespace = "" // which its owners may name nevertheless
		}
		return t.Ref == changed && !t.Template
	})
	w.mu.Unlock()
	w.notify(notified)
}

// Define applies a CustomResourceDefinition that was added (old is nil), changed or deleted (now is nil). A kind that
// is not defined counts as not served. What was forbidden is tried again at once.
func (w *Watches) Define(old, now *snapshot.Object) {
	d := w.definition(now)
	w.mu.Lock()
	changed := w.kinds.replace(w.definition(old), d)
	w.mu.Unlock()
	for _, kind := range changed {
		w.settle(kind)
	}
	if old == nil || d == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, f := range w.watches {
		if key.definition == d.Metadata.UID {
			f.retry()
		}
	}
	if f := w.templates[d.GroupKind()]; f != nil {
		f.retry()
	}
}

// settle opens and stops the watches of a kind as needed, and notifies the owners that depend on an object of that kind
// or have a template of it.
func (w *Watches) settle(kind schema.GroupKind) {
	w.mu.Lock()
	notified := w.ownersWith(func(t Target) bool { return t.kind() == kind })
	for owner := range notified {
		w.follow(owner)
	}
	if before := w.templates[kind]; before != nil {
		notified.addParents(before.known.Load().all()...)
	}
	w.followTemplates(kind)
	w.mu.Unlock()
	w.notify(notified)
}

// followTemplates watches the template objects of a kind if any may exist.
func (w *Watches) followTemplates(kind schema.GroupKind) {
	d := w.kinds[kind]
	if d != nil && !d.Template {
		d = nil
	}
	if f := w.templates[kind]; f != nil {
		if d != nil && f.watchKey == keyOf(d, "") {
			return
		}
		f.stop()
		delete(w.templates, kind)
	}
	if d == nil || w.run == nil {
		return
	}
	f := w.newWatch(keyOf(d, ""), nil)
	f.onObject = func(old, now *unstructured.Unstructured) {
		notified := owners{}
		notified.addParents(old, now)
		w.notify(notified)
	}
	f.onChange = func(before *watchState) {
		w.mu.Lock()
		notified := w.ownersWith(func(t Target) bool { return t.kind() == kind && t.Template })
		w.mu.Unlock()
		notified.addParents(before.all()...)
		notified.addParents(f.known.Load().all()...)
		w.notify(notified)
	}
	w.templates[kind] = f
	w.run(f)
}
