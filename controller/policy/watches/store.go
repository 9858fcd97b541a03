package watches

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// pageSize is the number of objects per list request if the API server does not stream lists: there may be any number
// of them, of
// 1.5 MiB each, and most are not stored.
const pageSize = 20

// store stores what a reflector reads, trimmed, and only selected objects. It costs a tenth of an informer, which has
// queues and goroutines for each of its handlers.
type store struct {
	cache.Indexer
	trim func(*unstructured.Unstructured) *unstructured.Unstructured
	// synced is called when the initial list is complete, again after each interruption; changed for each later change.
	synced  func()
	changed func(old, now *unstructured.Unstructured)
	// read is called for everything that was read, also if nothing that is stored has changed.
	read func()

	replaced bool
}

// Transformer returns the function with which the reflector trims objects before it collects them.
func (s *store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		if kept := s.trim(u); kept != nil {
			return kept, nil
		}
		// Objects that are not selected still need a key.
		bare := &unstructured.Unstructured{Object: map[string]any{}}
		bare.SetNamespace(u.GetNamespace())
		bare.SetName(u.GetName())
		return bare, nil
	}
}

// Add stores an object if it is selected.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update stores the new state of an object.
func (s *store) Update(obj any) error {
	now := s.trim(obj.(*unstructured.Unstructured))
	if now == nil {
		return nil
	}
	old := s.get(now)
	if err := s.Indexer.Update(now); err != nil {
		return err
	}
	s.report(old, now)
	return nil
}

// Delete removes an object.
func (s *store) Delete(obj any) error {
	old := s.get(obj.(*unstructured.Unstructured))
	if old == nil {
		return nil
	}
	if err := s.Indexer.Delete(old); err != nil {
		return err
	}
	s.report(old, nil)
	return nil
}

// Replace replaces all objects with those of a list that are selected.
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
			s.report(before[keyOf(now)], now)
			delete(before, keyOf(now))
		}
		for _, old := range before {
			s.report(old, nil)
		}
	}
	s.replaced = true
	s.read()
	s.synced()
	return nil
}

// Resync does nothing: every change was already passed on.
func (s *store) Resync() error { return nil }

func (s *store) report(old, now *unstructured.Unstructured) {
	s.read()
	if s.replaced && !same(old, now) {
		s.changed(old, now)
	}
}

func (s *store) get(u *unstructured.Unstructured) *unstructured.Unstructured {
	found, ok, _ := s.GetByKey(keyOf(u)) // a map returns no errors
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

// listWatch lists and watches the selected objects of a resource. Lists are read in pages that are trimmed one by one.
// Opened is called for each watch that is established.
func listWatch(client dynamic.Interface, resource dynamic.ResourceInterface, field, label string,
	trim func(*unstructured.Unstructured) *unstructured.Unstructured,
	opened func()) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector, o.LabelSelector = field, label
			// With a resourceVersion the API server would answer from its cache, without pages.
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
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector, o.LabelSelector = field, label
			w, err := resource.Watch(ctx, o)
			if err == nil {
				opened()
			}
			return w, err
		},
	}, client)
}
