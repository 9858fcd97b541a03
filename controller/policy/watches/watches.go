// Package watches follows the objects that Policies wait for, and those that are made of their templates.
//
// All objects of a kind in a namespace that are waited for share one watch, however many Policies wait for them. Of the rest that it brings
// nothing is kept; one object alone is selected by its name, so that nothing else of its kind is read. How many watches there may be is
// decided before (rules/dependency.Budget). Objects made of templates are followed with one watch for all of a kind, selected by their label. Which kinds there are is known from the CustomResourceDefinitions, so that a kind that appears, changes or
// disappears is noticed as well. No watch depends on another: a kind that is missing, or may not be read, says so and holds up nobody
// else. Nothing is asked again and again but what is not allowed, and that ever more seldom.
package watches

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/rules/dependency"
)

// Options configure Watches.
type Options struct {
	// Client lists and watches. Required.
	Client dynamic.Interface
	// Notify is told of each owner for which something may differ from before. It must return at once, may be called from
	// several goroutines at a time, and may call the Watches. Required.
	Notify func(owner types.NamespacedName)
	// Gatekeeper makes templates of Gatekeeper's kinds. Default: they are none, whatever their definitions say.
	Gatekeeper bool
	// Backoff is how long a watch that is not allowed is left alone at first; it doubles up to ten minutes. Default: 30 s.
	Backoff time.Duration
	// Log takes what may not be watched, and what may again, at V(0). Default: none.
	Log logr.Logger
}

// Watches follows objects. All its methods may be called at any time, from any goroutine; nothing is read before Start.
type Watches struct {
	Options
	kinds *Kinds
	// synced tells that all CustomResourceDefinitions have been read.
	synced atomic.Bool
	// changed is notified of all that is read of template objects.
	changed signal.Signal

	mu sync.Mutex
	// run has a follower run until it is stopped; nil while the Watches do not run.
	run func(*follower)
	// owners has what each owner named, targets the same by kind, and named by what was named.
	owners  map[types.NamespacedName]map[Target]*target
	targets map[schema.GroupKind]map[Target]*target
	named   map[dependency.Ref]map[*target]struct{}
	// groups are what is waited for, by kind and namespace, templates all of a kind.
	groups    map[subject]*group
	templates map[schema.GroupKind]*follower
}

// New makes Watches. Start runs them.
func New(o Options) (*Watches, error) {
	if o.Client == nil || o.Notify == nil {
		return nil, errors.New("watches options: Client and Notify are required")
	}
	o.Backoff = cmp.Or(o.Backoff, 30*time.Second)
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	return &Watches{Options: o, kinds: NewKinds(o),
		owners: map[types.NamespacedName]map[Target]*target{}, targets: map[schema.GroupKind]map[Target]*target{}, named: map[dependency.Ref]map[*target]struct{}{},
		groups: map[subject]*group{}, templates: map[schema.GroupKind]*follower{}}, nil
}

// Start follows what is set until the context ends, and returns when all watches have ended. It may be called once.
func (w *Watches) Start(ctx context.Context) error {
	informer, handled, err := w.definitions()
	if err != nil {
		return fmt.Errorf("watch %s: %w", definitions.Resource, err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	w.setRun(func(f *follower) {
		var own context.Context
		own, f.stop = context.WithCancel(ctx)
		running.Go(func() { f.run(own) })
	})
	defer w.setRun(nil) // before the wait, so that none is added to what is waited for
	running.Go(func() { informer.RunWithContext(ctx) })
	select {
	case <-ctx.Done():
		return nil
	case <-handled.Done():
	}
	w.synced.Store(true)
	w.notify(w.everybody())
	<-ctx.Done()
	return nil
}

// Synced tells whether the kinds of the cluster have been read: before, a kind that is not known may be there all the same.
func (w *Watches) Synced() bool { return w.synced.Load() }

// Changed is notified of all that is read of template objects, for those who wait for what they have written.
func (w *Watches) Changed() *signal.Signal { return &w.changed }

// Kinds are those of the cluster.
func (w *Watches) Kinds() *Kinds { return w.kinds }

// Open returns the number of watches on what is waited for.
func (w *Watches) Open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := 0
	for _, g := range w.groups {
		for _, f := range g.followers() {
			if f != nil {
				open++
			}
		}
	}
	return open
}

func (w *Watches) setRun(run func(*follower)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run = run
}

// definitions returns the informer that updates Kinds.
func (w *Watches) definitions() (cache.SharedIndexInformer, cache.DoneChecker, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(w.Client, definitions, "", 0, nil, nil).Informer()
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { w.redefine(nil, obj.(*definition)) },
		UpdateFunc: func(old, obj any) { w.redefine(old.(*definition), obj.(*definition)) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			w.redefine(obj.(*definition), nil)
		},
	})
	err = errors.Join(err, informer.SetTransform(define), informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		w.Log.Info("watch interrupted, retrying", "resource", definitions.Resource, "error", err.Error())
	}))
	if err != nil {
		return nil, nil, err
	}
	return informer, registration.HasSyncedChecker(), nil
}

// redefine takes a definition that appeared (there is no old one), changed or disappeared (there is no new one).
func (w *Watches) redefine(old, now *definition) {
	for _, kind := range w.kinds.replace(old, now) {
		w.settle(kind)
	}
	if old != nil && now != nil {
		w.retry(now.groupKind())
	}
}

// settle makes the watches of a kind what they should be and tells those who wait for something of that kind, or have a
// template of it.
func (w *Watches) settle(kind schema.GroupKind) {
	w.mu.Lock()
	for _, t := range w.targets[kind] {
		w.open(t)
	}
	before := w.templates[kind]
	w.openTemplates(kind)
	told := owners{}
	for _, t := range w.targets[kind] {
		told.add(t.owners)
	}
	w.mu.Unlock()
	if before != nil {
		told.addParents(before.known.Load().all()...)
	}
	w.notify(told)
}

// retry tries again now what may not be watched of a kind.
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

// everybody gives all owners.
func (w *Watches) everybody() owners {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := owners{}
	for owner := range w.owners {
		all[owner] = struct{}{}
	}
	return all
}

func (w *Watches) notify(told owners) {
	for owner := range told {
		w.Notify(owner)
	}
}
