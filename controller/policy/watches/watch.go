package watches

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/signal"
)

const (
	// longestPause is the longest backoff of a forbidden watch.
	longestPause = 10 * time.Minute
	// pageSize is the number of objects per list request if the API server does not stream lists: there may be any
	// number of them, of 1.5 MiB each, and most are not stored.
	pageSize = 20
)

// watchKey identifies what one watch covers: the objects of a kind in a namespace that are dependencies, or one of them, or all
// template objects of the kind. Keys that differ in any field need separate watches.
type watchKey struct {
	resource   schema.GroupVersionResource
	namespaced bool
	namespace  string
	// definition is the UID of the definition: one that was deleted and recreated is another.
	definition types.UID
}

// right returns the permission that the watch requires.
func (s watchKey) right() string {
	right := "list and watch " + s.resource.GroupResource().String()
	switch {
	case s.namespace != "":
		right += " in namespace " + s.namespace
	case s.namespaced:
		right += " in all namespaces"
	}
	return right
}

// watch watches the objects of a key with an informer. If that is forbidden the informer stops, and a new one is
// started after a backoff.
type watch struct {
	watchKey
	// names are those of the objects that are stored; nil stores all that are made of templates. They do not change:
	// more names need another watch.
	names   map[string]struct{}
	client  dynamic.Interface
	backoff time.Duration
	log     logr.Logger
	// onChange is called when the initial list is complete or forbidden, unlike before; changed for each later change
	// of a stored object. An added object has no old state, a deleted one no new state. Neither may block.
	onChange func(before *watchState)
	changed  func(old, now *unstructured.Unstructured)
	// read is called for everything that was read.
	read func()

	// stop stops it.
	stop context.CancelFunc
	// again holds one token: retry at once.
	again chan struct{}
	// known is nil until the first list is complete or forbidden.
	known atomic.Pointer[watchState]
}

// watchState is the state of what a watch covers: its objects, which an informer updates, or why it may not be read.
type watchState struct {
	objects cache.Indexer
	denied  error
}

func (w *Watches) newWatch(s watchKey, names map[string]struct{}) *watch {
	return &watch{watchKey: s, names: names, client: w.Client, backoff: w.Backoff, read: w.changed.Notify,
		log: w.Log.WithValues("resource", s.resource.GroupResource().String(), "namespace", s.namespace,
			"objects", len(names)),
		again: make(chan struct{}, 1)}
}

// covers reports whether an object is among those that are stored.
func (f *watch) covers(name string) bool {
	if f == nil {
		return false
	}
	_, ok := f.names[name]
	return ok
}

// trim returns the part of an object that is stored, nil if it is not selected.
func (f *watch) trim(u *unstructured.Unstructured) *unstructured.Unstructured {
	switch {
	case f.names == nil:
		return trim(u)
	case f.covers(u.GetName()):
		return trimDependency(u)
	}
	return nil
}

// retry retries a forbidden watch at once.
func (f *watch) retry() {
	if f == nil {
		return
	}
	if known := f.known.Load(); known != nil && known.denied != nil {
		signal.Put(f.again)
	}
}

// run watches until the context ends.
func (f *watch) run(ctx context.Context) {
	defer f.stop()
	pause := f.backoff
	for {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if before := f.known.Load(); before == nil || before.denied == nil {
			pause = f.backoff
			f.log.Info("watch forbidden, retrying with backoff", "error", err.Error())
			f.setState(&watchState{denied: fmt.Errorf("the right to %s is missing", f.right())})
		}
		timer := time.NewTimer(wait.Jitter(pause, 0.1))
		select {
		case <-ctx.Done():
		case <-timer.C:
			pause = min(2*pause, longestPause)
		case <-f.again:
			pause = f.backoff // a right that was just granted takes a moment to be in force
		}
		timer.Stop()
	}
}

// follow runs an informer until the context ends or the watch is forbidden. The informer retries all other errors.
func (f *watch) follow(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	opened := make(chan struct{})
	indexers := cache.Indexers{}
	if f.names == nil {
		indexers[byParent] = indexParent
	}
	informer := cache.NewSharedIndexInformer(f.listWatch(sync.OnceFunc(func() { close(opened) })),
		&unstructured.Unstructured{}, 0, indexers)
	current := &watchState{objects: informer.GetIndexer()}
	changed := func(old, now *unstructured.Unstructured) {
		f.read()
		if f.known.Load() == current && !same(old, now) { // before, setState reports it
			f.changed(old, now)
		}
	}
	handled, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(now any) { changed(nil, now.(*unstructured.Unstructured)) },
		UpdateFunc: func(old, now any) {
			changed(old.(*unstructured.Unstructured), now.(*unstructured.Unstructured))
		},
		DeleteFunc: func(old any) {
			if gone, ok := old.(cache.DeletedFinalStateUnknown); ok {
				old = gone.Obj
			}
			changed(old.(*unstructured.Unstructured), nil)
		},
	})
	if err != nil {
		return err // only of an informer that has stopped
	}
	err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) {
			end(err)
			return
		}
		level := 1
		if f.known.Load() == nil { // a Policy waits for it
			level = 0
		}
		f.log.V(level).Info("watch interrupted, retrying", "error", err.Error())
	})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { informer.RunWithContext(ctx) })
	// A list is not enough: with list but without watch permission the state would be outdated, again and again.
	for _, happened := range []<-chan struct{}{opened, handled.HasSyncedChecker().Done()} {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-happened:
		}
	}
	f.setState(current)
	<-ctx.Done()
	return context.Cause(ctx)
}

// setState sets the state.
func (f *watch) setState(now *watchState) {
	before := f.known.Swap(now)
	if before != nil && before.denied != nil {
		f.log.Info("watch is allowed")
	}
	f.onChange(before)
	f.read()
}

// listWatch lists and watches the selected objects, trimmed one by one; the informer sees no others. A single object is
// selected by its name, so that nothing else of its kind is read, and permission for that object is enough. Opened is
// called for each watch that is established.
func (f *watch) listWatch(opened func()) cache.ListerWatcher {
	var resource dynamic.ResourceInterface = f.client.Resource(f.resource)
	if f.namespace != "" {
		resource = f.client.Resource(f.resource).Namespace(f.namespace)
	}
	selected := func(o *metav1.ListOptions) {
		if f.names == nil {
			o.LabelSelector = metakey.Policy
		}
		for name := range f.names {
			if len(f.names) == 1 {
				o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
			}
		}
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			selected(&o)
			// With a resourceVersion the API server would answer from its cache, without pages.
			o.ResourceVersion, o.ResourceVersionMatch, o.Limit = "", "", pageSize
			all := &unstructured.UnstructuredList{}
			for {
				page, err := resource.List(ctx, o)
				if err != nil {
					return nil, err
				}
				for i := range page.Items {
					if kept := f.trim(&page.Items[i]); kept != nil {
						all.Items = append(all.Items, *kept)
					}
				}
				all.Object = page.Object
				if o.Continue = page.GetContinue(); o.Continue == "" {
					return all, nil
				}
			}
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			selected(&o)
			events, err := resource.Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			opened()
			return apiwatch.Filter(events, func(e apiwatch.Event) (apiwatch.Event, bool) {
				u, ok := e.Object.(*unstructured.Unstructured)
				if !ok || e.Type == apiwatch.Bookmark {
					return e, true
				}
				kept := f.trim(u)
				e.Object = kept
				return e, kept != nil
			}), nil
		},
	}, f.client)
}
