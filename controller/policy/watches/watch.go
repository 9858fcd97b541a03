package watches

import (
	"context"
	"fmt"
	"maps"
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
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/snapshot"
)

const (
	// longestPause is the longest backoff of a forbidden watch.
	longestPause = 10 * time.Minute
	// pageSize is the number of objects per list request if the API server does not stream lists: there may be any
	// number of them, of 1.5 MiB each, and most are not stored.
	pageSize = 20
)

// watchKey identifies what one watch covers: the objects of a kind in a namespace, or in all. Keys that differ in any
// field need separate watches.
type watchKey struct {
	resource   schema.GroupVersionResource
	namespaced bool
	namespace  string
	// definition is the UID of the definition: one that was deleted and recreated is another.
	definition string
}

// keyOf returns what to watch for objects of a kind in a namespace, or without one, in all. It uses the storage version,
// so that reads need no conversion webhook, which may not answer.
func keyOf(d *snapshot.Definition, namespace string) watchKey {
	version := d.Storage
	if version == "" || !serves(d, version) {
		version = d.Versions[0]
	}
	if !d.Namespaced {
		namespace = ""
	}
	return watchKey{resource: schema.GroupVersionResource{Group: d.Group, Version: version, Resource: d.Plural},
		namespaced: d.Namespaced, namespace: namespace, definition: d.Metadata.UID}
}

// right returns the permission that the watch requires.
func (k watchKey) right() string {
	right := "list and watch " + k.resource.GroupResource().String()
	switch {
	case k.namespace != "":
		right += " in namespace " + k.namespace
	case k.namespaced:
		right += " in all namespaces"
	}
	return right
}

// watch watches the objects of a key with an informer. If that is forbidden the informer stops, and a new one is
// started after a backoff.
type watch struct {
	watchKey
	*Watches
	log logr.Logger
	// names are those of the objects that are stored; nil stores all that are made of templates. owners are those that
	// need the watch. Watches.mu guards both.
	names  map[string]struct{}
	owners owners
	// onChange is called when the initial list is complete or forbidden, unlike before; onObject for each later
	// change of a stored object. An added object has no old state, a deleted one no new state. Neither may block.
	onChange func(before *watchState)
	onObject func(old, now *unstructured.Unstructured)

	// stop stops it.
	stop context.CancelFunc
	// again holds one token: read again at once, since there are more names or a right may have been granted.
	again chan struct{}
	known atomic.Pointer[watchState]
}

// watchState is the state of what a watch covers: its objects, which an informer updates, or why it may not be read.
type watchState struct {
	objects cache.Indexer
	// names are those of the watch when the objects were listed.
	names  map[string]struct{}
	denied error
}

// unread is the state until the first list is complete or forbidden.
var unread = &watchState{objects: cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)}

func (w *Watches) newWatch(key watchKey, names map[string]struct{}) *watch {
	f := &watch{watchKey: key, Watches: w, names: names, owners: owners{}, again: make(chan struct{}, 1),
		log: w.Log.WithValues("resource", key.resource.GroupResource().String(), "namespace", key.namespace)}
	f.known.Store(unread)
	return f
}

// read returns the names of the objects to read.
func (f *watch) read() map[string]struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.again:
	default:
	}
	return maps.Clone(f.names)
}

// retry retries a forbidden watch at once.
func (f *watch) retry() {
	if f.known.Load().denied != nil {
		signal.Put(f.again)
	}
}

// run watches until the context ends.
func (f *watch) run(ctx context.Context) {
	defer f.stop()
	pause := f.Backoff
	for {
		err := f.follow(ctx, f.read())
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			continue
		}
		if f.known.Load().denied == nil {
			pause = f.Backoff
			f.log.Info("watch forbidden, retrying with backoff", "error", err.Error())
			f.setState(&watchState{objects: unread.objects, denied: fmt.Errorf("the right to %s is missing", f.right())})
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.Jitter(pause, 0.1)):
			pause = min(2*pause, longestPause)
		case <-f.again:
			pause = f.Backoff // a right that was just granted takes a moment to be in force
		}
	}
}

// follow runs an informer until the context ends, the watch is forbidden or, with nil, there is more to read: the known
// state stays available meanwhile. The informer retries all other errors.
func (f *watch) follow(ctx context.Context, names map[string]struct{}) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil) // before the wait
	opened := make(chan struct{})
	informer := cache.NewSharedIndexInformer(f.listWatch(names, sync.OnceFunc(func() { close(opened) })),
		&unstructured.Unstructured{}, 0, indexers)
	current := &watchState{objects: informer.GetIndexer(), names: names}
	changed := func(old, now *unstructured.Unstructured) {
		f.changed.Notify()
		if f.known.Load() == current && !same(old, now) { // before, setState reports it
			f.onObject(old, now)
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
		if f.known.Load() == unread { // a Policy waits for it
			level = 0
		}
		f.log.V(level).Info("watch interrupted, retrying", "error", err.Error())
	})
	if err != nil {
		return err
	}
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
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-f.again:
		return nil
	}
}

// setState sets the state.
func (f *watch) setState(now *watchState) {
	before := f.known.Swap(now)
	if before.denied != nil {
		f.log.Info("watch is allowed")
	}
	f.onChange(before)
	f.changed.Notify()
}

// listWatch lists and watches the objects, trimmed one by one; the informer sees no others. A single object is selected by
// its name, so that nothing else of its kind is read, and permission for that object is enough. Opened is called for each
// watch that is established.
func (f *watch) listWatch(names map[string]struct{}, opened func()) cache.ListerWatcher {
	resource := f.Client.Resource(f.resource).Namespace(f.namespace)
	var selected metav1.ListOptions
	if names == nil {
		selected.LabelSelector = metakey.Policy
	}
	for name := range names {
		if len(names) == 1 {
			selected.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}
	}
	stored := func(u *unstructured.Unstructured) *unstructured.Unstructured {
		if names == nil {
			return trim(u)
		}
		if _, ok := names[u.GetName()]; ok {
			return trimDependency(u)
		}
		return nil
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			// With a resourceVersion the API server would answer from its cache, without pages.
			o.ResourceVersion, o.ResourceVersionMatch, o.Limit = "", "", pageSize
			o.LabelSelector, o.FieldSelector = selected.LabelSelector, selected.FieldSelector
			all := &unstructured.UnstructuredList{}
			for {
				page, err := resource.List(ctx, o)
				if err != nil {
					return nil, err
				}
				for i := range page.Items {
					if kept := stored(&page.Items[i]); kept != nil {
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
			o.LabelSelector, o.FieldSelector = selected.LabelSelector, selected.FieldSelector
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
				kept := stored(u)
				e.Object = kept
				return e, kept != nil
			}), nil
		},
	}, f.Client)
}
