// Package watched watches single objects by their names. The RBAC rule for that is limited to the name.
package watched

import (
	"context"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// Object is one watched object.
type Object struct {
	// Client sends requests for the resource, in the namespace of the object.
	Client dynamic.ResourceInterface
	// Informer watches the object. The caller runs it.
	Informer cache.SharedIndexInformer
	// Synced reports whether the object, or that there is none, was read and passed on once.
	Synced cache.InformerSynced
}

// New returns an object to watch, with namespace "" if it is cluster-scoped. Changed is called after each change.
func New(
	client dynamic.Interface, resource schema.GroupVersionResource, namespace, name string, changed func(), log logr.Logger,
) (*Object, error) {
	o := &Object{Client: client.Resource(resource)}
	if namespace != "" {
		o.Client = client.Resource(resource).Namespace(namespace)
	}
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	o.Informer = dynamicinformer.NewFilteredDynamicInformer(client, resource, namespace, 0, nil, func(options *metav1.ListOptions) {
		options.FieldSelector = only
	}).Informer()
	err := o.Informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Info("watch interrupted, retrying", "resource", resource.Resource, "name", name, "error", err.Error())
	})
	if err != nil {
		return nil, err
	}
	handled, err := o.Informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return nil, err
	}
	o.Synced = handled.HasSynced
	return o, nil
}

// Get returns the object as last observed, nil if it does not exist. It must not be modified.
func (o *Object) Get() *unstructured.Unstructured {
	for _, current := range o.Informer.GetStore().List() {
		return current.(*unstructured.Unstructured)
	}
	return nil
}
