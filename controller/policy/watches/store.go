package watches

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// pageSize is how many objects are listed at a time where the API server does not stream them: there may be any number, of 1.5 MiB
// each, and most are not kept.
const pageSize = 20

// store keeps what a reflector reads, trimmed, and only what is wanted. It costs a tenth of an informer, which has queues and goroutines
// of its own for each of its handlers.
type store struct {
	cache.Indexer
	trim func(*unstructured.Unstructured) *unstructured.Unstructured
	// synced is called when all has been read, again after each pause; changed of each change after the first time.
	synced  func()
	changed func(old, now *unstructured.Unstructured)
	// read is called of all that was read, also where nothing that is kept has changed.
	read func()

	replaced bool
}

// Transformer makes the reflector trim objects before it collects them.
func (s *store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		if kept := s.trim(u); kept != nil {
			return kept, nil
		}
		// What is not wanted still needs a key.
		bare := &unstructured.Unstructured{Object: map[string]any{}}
		bare.SetNamespace(u.GetNamespace())
		bare.SetName(u.GetName())
		return bare, nil
	}
}

// Add keeps an object that is wanted.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update keeps what an object is now.
func (s *store) Update(obj any) error {
	now := s.trim(obj.(*unstructured.Unstructured))
	if now == nil {
		return nil
	}
	old := s.get(now)
	if err := s.Indexer.Update(now); err != nil {
		return err
	}
	s.tell(old, now)
	return nil
}

// Delete forgets an object.
func (s *store) Delete(obj any) error {
	old := s.get(obj.(*unstructured.Unstructured))
	if old == nil {
		return nil
	}
	if err := s.Indexer.Delete(old); err != nil {
		return err
	}
	s.tell(old, nil)
	return nil
}

// Replace keeps these objects, as far as they are wanted, and no others.
func (s *store) Replace(list []any, version string) error {
	before := map[string]*unstructured.Unstructured{}
	for _, obj := range s.List() {
		before[keyOf(obj.(*unstructured.Unstructured))] = obj.(*unstructured.Unstructured)
	}
	wanted := make([]any, 0, len(list))
	for _, obj := range list {
		if now := s.trim(obj.(*unstructured.Unstructured)); now != nil {
			wanted = append(wanted, now)
		}
	}
	if err := s.Indexer.Replace(wanted, version); err != nil {
		return err
	}
	if s.replaced {
		for _, obj := range wanted {
			now := obj.(*unstructured.Unstructured)
			s.tell(before[keyOf(now)], now)
			delete(before, keyOf(now))
		}
		for _, old := range before {
			s.tell(old, nil)
		}
	}
	s.replaced = true
	s.read()
	s.synced()
	return nil
}

// Resync does nothing: there is nothing that is not passed on.
func (s *store) Resync() error { return nil }

func (s *store) tell(old, now *unstructured.Unstructured) {
	s.read()
	if s.replaced && !same(old, now) {
		s.changed(old, now)
	}
}

func (s *store) get(u *unstructured.Unstructured) *unstructured.Unstructured {
	found, ok, _ := s.GetByKey(keyOf(u)) // a map has no errors
	if !ok {
		return nil
	}
	return found.(*unstructured.Unstructured)
}

func keyOf(u *unstructured.Unstructured) string {
	if u.GetNamespace() == "" {
		return u.GetName()
	}
	return u.GetNamespace() + "/" + u.GetName()
}

// listWatch lists and watches the objects of a resource that are selected. A list is read in pages that are trimmed one by one. Opened is
// called for each watch that is open.
func listWatch(client dynamic.Interface, resource dynamic.ResourceInterface, field, label string, trim func(*unstructured.Unstructured) *unstructured.Unstructured,
	opened func()) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector, o.LabelSelector = field, label
			// The version that was asked for would have the API server answer from its cache, all at once.
			o.ResourceVersion, o.ResourceVersionMatch, o.Limit = "", "", pageSize
			all := &unstructured.UnstructuredList{}
			for {
				page, err := resource.List(ctx, o)
				if err != nil {
					return nil, err
				}
				for i := range page.Items {
					if kept := trim(&page.Items[i]); kept != nil {
						all.Items = append(all.Items, *kept)
					}
				}
				all.Object = page.Object
				if o.Continue = page.GetContinue(); o.Continue == "" {
					return all, nil
				}
			}
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector, o.LabelSelector = field, label
			w, err := resource.Watch(ctx, o)
			if err == nil {
				opened()
			}
			return w, err
		},
	}, client)
}
