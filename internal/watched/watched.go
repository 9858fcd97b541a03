// Package watched watches objects by their names. The RBAC rule for that is limited to the name.
package watched

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Object is a watch of one object, or of those of a name in all namespaces. The caller starts it, or has a manager do so
// by opening it.
type Object struct {
	Informer cache.SharedIndexInformer
	// Client sends requests for the resource, in the namespace of the object.
	Client dynamic.ResourceInterface
	// Synced reports whether all objects were read and passed on once.
	Synced cache.InformerSynced
	// Failed is called with each error of listing or watching, which is logged. Default: not called.
	Failed  func(error)
	changed func(object any)
	opened  bool
}

// New returns an object to watch, with namespace "" if it is cluster-scoped, or for those of the name in all namespaces.
// Changed is called with the object that has changed, and with nil once all were passed on, or found not to exist.
func New(
	client dynamic.Interface, resource schema.GroupVersionResource, namespace, name string, changed func(object any),
	log logr.Logger,
) *Object {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	w := &Object{Client: client.Resource(resource).Namespace(namespace), Failed: func(error) {}, changed: changed}
	w.Informer = dynamicinformer.NewFilteredDynamicInformer(client, resource, namespace, 0, nil,
		func(options *metav1.ListOptions) {
			options.FieldSelector = only
		}).Informer()
	log = log.WithValues("resource", resource.Resource, "name", name)
	utilruntime.Must(w.Informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Info("watch interrupted, retrying", "error", err.Error())
		w.Failed(err)
	}))
	handled, err := w.Informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, now any) { changed(now) },
		DeleteFunc: changed,
	})
	utilruntime.Must(err) // both fail for an informer that was started
	w.Synced = handled.HasSynced
	return w
}

// Open adds the watch to a manager that runs, if it has not been opened, and waits until it shows what is stored. It is
// not safe for concurrent use.
func (w *Object) Open(ctx context.Context, mgr manager.Manager) error {
	if !w.opened {
		if err := mgr.Add(w); err != nil {
			return err
		}
		w.opened = true
	}
	if !cache.WaitForCacheSync(ctx.Done(), w.Synced) {
		return ctx.Err()
	}
	return nil
}

// Start implements manager.Runnable. It watches until the context ends.
func (w *Object) Start(ctx context.Context) error {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), w.Synced) {
			w.changed(nil)
		}
	})
	w.Informer.RunWithContext(ctx)
	return nil
}

// Get returns the object as last observed, nil if it does not exist. It must not be modified.
func (w *Object) Get() *unstructured.Unstructured {
	for _, current := range w.Informer.GetStore().List() {
		return current.(*unstructured.Unstructured)
	}
	return nil
}
