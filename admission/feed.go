package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/opgate/opgate/rules"
)

// Feed keeps a Store's snapshot current from watches. A snapshot is built from the parts of the last one
// that did not change: a write to one namespace costs what that namespace holds.
type Feed struct {
	client dynamic.Interface
	store  *Store
	log    logr.Logger
	now    func() time.Time

	// changed wakes the builder; it holds one token, so that any number of events while it builds cost one
	// more build.
	changed chan struct{}

	mu    sync.Mutex
	dirty map[string]struct{}
	seen  map[string]Seen // by resource
}

// NewFeed makes a feed that fills a store. Start runs it.
func NewFeed(client dynamic.Interface, store *Store, log logr.Logger, now func() time.Time) *Feed {
	return &Feed{client: client, store: store, log: log, now: now,
		changed: make(chan struct{}, 1), dirty: map[string]struct{}{}, seen: map[string]Seen{}}
}

// byNamespace indexes what an informer holds by the namespace that it concerns.
const byNamespace = "namespace"

// Start follows the API server until the context ends. The first snapshot is stored once all resources
// have been listed; a resource that the API server does not serve yet keeps the gate closed.
func (f *Feed) Start(ctx context.Context) error {
	informers := make(map[string]cache.SharedIndexInformer, len(sources))
	synced := make([]cache.InformerSynced, 0, len(sources))
	var running sync.WaitGroup
	defer running.Wait()
	for _, src := range sources {
		informer, handled, err := f.informer(src)
		if err != nil {
			return fmt.Errorf("watch %s: %w", src.resource.Resource, err)
		}
		informers[src.resource.Resource] = informer
		synced = append(synced, handled)
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // the process is stopping
	}
	for {
		f.build(informers)
		select {
		case <-ctx.Done():
			return nil
		case <-f.changed:
		}
	}
}

// NeedLeaderElection is false: every replica judges, so every replica needs a snapshot.
func (f *Feed) NeedLeaderElection() bool { return false }

func (f *Feed) informer(src source) (cache.SharedIndexInformer, cache.InformerSynced, error) {
	client := f.client.Resource(src.resource)
	informer := cache.NewSharedIndexInformerWithOptions(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc:  listing(client),
			WatchFuncWithContext: watching(client),
		}, f.client),
		unstructuredExample(), cache.SharedIndexInformerOptions{Indexers: cache.Indexers{byNamespace: func(obj any) ([]string, error) {
			return []string{obj.(*item).concerns}, nil
		}}})
	if err := informer.SetTransform(f.transform(src)); err != nil {
		return nil, nil, err
	}
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		f.log.Info("watch interrupted, it is tried again", "resource", src.resource.Resource, "error", err.Error())
	})
	if err != nil {
		return nil, nil, err
	}
	resource := src.resource.Resource
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { f.note(resource, obj, 1) },
		UpdateFunc: func(old, obj any) {
			f.note(resource, old, 0) // a policy may have moved to another namespace
			f.note(resource, obj, 0)
		},
		DeleteFunc: func(obj any) { f.note(resource, obj, -1) },
	})
	if err != nil {
		return nil, nil, err
	}
	return informer, registration.HasSynced, nil
}

// note marks the namespace that an event concerns for the next build. More is how many objects there are
// more than before.
func (f *Feed) note(resource string, obj any, more int) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	it := obj.(*item)
	f.mu.Lock()
	f.dirty[it.concerns] = struct{}{}
	seen := f.seen[resource]
	f.seen[resource] = Seen{ResourceVersion: newer(seen.ResourceVersion, it.ResourceVersion), Objects: seen.Objects + more}
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// newer gives the later of two resourceVersions.
func newer(a, b string) string {
	if a == "" {
		return b
	}
	if order, err := resourceversion.CompareResourceVersion(a, b); err == nil && order >= 0 {
		return a
	}
	return b
}

// build stores a snapshot in which the namespaces that changed are new and the others those of the last one.
func (f *Feed) build(informers map[string]cache.SharedIndexInformer) {
	f.mu.Lock()
	dirty := f.dirty
	f.dirty = map[string]struct{}{}
	seen := maps.Clone(f.seen)
	f.mu.Unlock()

	next := &Snapshot{generation: 1, built: f.now(), seen: seen, namespaces: map[string]*rules.Namespace{}}
	if last := f.store.Load(); last != nil {
		next.generation, next.namespaces = last.generation+1, maps.Clone(last.namespaces)
	}
	for name := range dirty {
		var cluster rules.Cluster
		for _, src := range sources {
			held, err := informers[src.resource.Resource].GetIndexer().ByIndex(byNamespace, name)
			if err != nil {
				panic(err) // the index is made a few lines above; without it no decision could be trusted
			}
			for _, obj := range held {
				obj.(*item).add(&cluster)
			}
		}
		if ns, ok := cluster.Namespaces()[name]; ok {
			next.namespaces[name] = ns
		} else {
			delete(next.namespaces, name)
		}
	}
	f.store.current.Store(next)
	f.log.V(1).Info("snapshot built", "generation", next.generation, "namespaces", slices.Sorted(maps.Keys(dirty)))
}

// item is what the feed keeps of an object: its identity, the namespace it concerns, and how to add it.
type item struct {
	metav1.ObjectMeta
	concerns string
	add      func(*rules.Cluster)
}
