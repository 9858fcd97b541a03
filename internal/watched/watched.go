// Package watched watches objects, above all single ones by their names. The RBAC rule for that is limited to the name.
package watched

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// Watch is a watch of objects. The caller runs its Informer, or adds it to a manager to start when it is opened.
type Watch struct {
	Informer cache.SharedIndexInformer
	// Synced reports whether all objects were read and passed on once.
	Synced cache.InformerSynced
	// Failed is called with each error of listing or watching, which is logged. Default: not called.
	Failed func(error)
	start  chan struct{}
	opened bool
}

// NewWatch returns a watch. Changed is called after each change of an object, with the object.
func NewWatch(informer cache.SharedIndexInformer, changed func(object any), log logr.Logger) (*Watch, error) {
	w := &Watch{Informer: informer, Failed: func(error) {}, start: make(chan struct{})}
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Info("watch interrupted, retrying", "error", err.Error())
		w.Failed(err)
	})
	if err != nil {
		return nil, err
	}
	handled, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, now any) { changed(now) },
		DeleteFunc: changed,
	})
	if err != nil {
		return nil, err
	}
	w.Synced = handled.HasSynced
	return w, nil
}

// Open starts the watch, if it has not been opened, and waits until it shows what is stored. It is not safe for
// concurrent use.
func (w *Watch) Open(ctx context.Context) error {
	if !w.opened {
		w.opened = true
		close(w.start)
	}
	if !cache.WaitForCacheSync(ctx.Done(), w.Synced) {
		return ctx.Err()
	}
	return nil
}

// Start implements manager.Runnable. It watches, once it is opened, until the context ends.
func (w *Watch) Start(ctx context.Context) error {
	select {
	case <-w.start:
		w.Informer.RunWithContext(ctx)
	case <-ctx.Done():
	}
	return nil
}

// Object is one watched object.
type Object struct {
	*Watch
	changed func()
	// Client sends requests for the resource, in the namespace of the object.
	Client dynamic.ResourceInterface
}

// New returns an object to watch, with namespace "" if it is cluster-scoped. Changed is called after each change.
func New(
	client dynamic.Interface, resource schema.GroupVersionResource, namespace, name string, changed func(),
	log logr.Logger,
) (*Object, error) {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	informer := dynamicinformer.NewFilteredDynamicInformer(client, resource, namespace, 0, nil,
		func(options *metav1.ListOptions) {
			options.FieldSelector = only
		}).Informer()
	w, err := NewWatch(informer, func(any) { changed() }, log.WithValues("resource", resource.Resource, "name", name))
	if err != nil {
		return nil, fmt.Errorf("watch %s %s: %w", resource.Resource, name, err)
	}
	o := &Object{Watch: w, changed: changed, Client: client.Resource(resource)}
	if namespace != "" {
		o.Client = client.Resource(resource).Namespace(namespace)
	}
	return o, nil
}

// Run watches until the context ends. A change is passed on also once the object was found not to exist.
func (o *Object) Run(ctx context.Context) {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), o.Synced) {
			o.changed()
		}
	})
	o.Informer.RunWithContext(ctx)
}

// Get returns the object as last observed, nil if it does not exist. It must not be modified.
func (o *Object) Get() *unstructured.Unstructured {
	for _, current := range o.Informer.GetStore().List() {
		return current.(*unstructured.Unstructured)
	}
	return nil
}
