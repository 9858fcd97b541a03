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
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
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
	run func(*watch)
	// owners has the targets of each owner, targets the same by kind, and named by target.
	owners  map[types.NamespacedName]map[Target]*target
	targets map[schema.GroupKind]map[Target]*target
	named   map[dependency.Ref]map[*target]struct{}
	// groups are the dependencies by kind and namespace, templates the template objects by kind.
	groups    map[subject]*group
	templates map[schema.GroupKind]*watch
}

// New returns Watches. Start runs them.
func New(o Options) (*Watches, error) {
	if o.Client == nil || o.Notify == nil {
		return nil, errors.New("watches options: Client and Notify are required")
	}
	o.Backoff = cmp.Or(o.Backoff, 30*time.Second)
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	return &Watches{Options: o, kinds: NewKinds(o),
		owners: map[types.NamespacedName]map[Target]*target{}, targets: map[schema.GroupKind]map[Target]*target{},
		named:  map[dependency.Ref]map[*target]struct{}{},
		groups: map[subject]*group{}, templates: map[schema.GroupKind]*watch{}}, nil
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

// Changed is notified of everything that is read of template objects, for those that wait for their own writes.
func (w *Watches) Changed() *signal.Signal { return &w.changed }

// Kinds returns the kinds of the cluster.
func (w *Watches) Kinds() *Kinds { return w.kinds }

// Open returns the number of watches on dependencies.
func (w *Watches) Open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := 0
	for _, g := range w.groups {
		for _, f := range g.watches() {
			if f != nil {
				open++
			}
		}
	}
	return open
}

func (w *Watches) setRun(run func(*watch)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run = run
}

// Define applies a CustomResourceDefinition that was added (old is nil), changed or deleted (now is nil). A kind that
// is not defined counts as not served.
func (w *Watches) Define(old, now *snapshot.Object) {
	for _, kind := range w.kinds.replace(definitionOf(old), definitionOf(now)) {
		w.settle(kind)
	}
	if d := definitionOf(now); old != nil && d != nil {
		w.retry(d.GroupKind())
	}
}

// settle opens and closes the watches of a kind as needed, and notifies the owners that depend on an object of that
// kind or have a template of it.
func (w *Watches) settle(kind schema.GroupKind) {
	w.mu.Lock()
	for _, t := range w.targets[kind] {
		w.open(t)
	}
	before := w.templates[kind]
	w.openTemplates(kind)
	notified := owners{}
	for _, t := range w.targets[kind] {
		notified.add(t.owners)
	}
	w.mu.Unlock()
	if before != nil {
		notified.addParents(before.known.Load().all()...)
	}
	w.notify(notified)
}

// retry retries the forbidden watches of a kind at once.
func (w *Watches) retry(kind schema.GroupKind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.targets[kind] {
		if t.group != nil {
			t.group.current.retry() // nil does nothing
			t.group.next.retry()
		}
	}
	w.templates[kind].retry() // nil does nothing
}

func (w *Watches) notify(notified owners) {
	for owner := range notified {
		w.Notify(owner)
	}
}
