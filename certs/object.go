package certs

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

var (
	secretsResource    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	namespacesResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// object is one watched object.
type object struct {
	client   dynamic.ResourceInterface
	informer cache.SharedIndexInformer
	synced   cache.InformerSynced
}

// watchObject returns an object to watch, with namespace "" if it is cluster-scoped. Changed is called after each change.
// The caller runs the informer.
func watchObject(
	client dynamic.Interface, resource schema.GroupVersionResource, namespace, name string, changed func(), log logr.Logger,
) (*object, error) {
	o := &object{client: client.Resource(resource)}
	if namespace != "" {
		o.client = client.Resource(resource).Namespace(namespace)
	}
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	o.informer = dynamicinformer.NewFilteredDynamicInformer(client, resource, namespace, 0, nil, func(options *metav1.ListOptions) {
		options.FieldSelector = only
	}).Informer()
	err := o.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Info("watch interrupted, retrying", "resource", resource.Resource, "name", name, "error", err.Error())
	})
	if err != nil {
		return nil, err
	}
	handled, err := o.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return nil, err
	}
	o.synced = handled.HasSynced
	return o, nil
}

// get returns the object as last observed, nil if it does not exist. It must not be modified.
func (o *object) get() *unstructured.Unstructured {
	for _, current := range o.informer.GetStore().List() {
		return current.(*unstructured.Unstructured)
	}
	return nil
}

// secret returns the object as a Secret, nil if it does not exist.
func (o *object) secret() (*corev1.Secret, error) {
	current := o.get()
	if current == nil {
		return nil, nil
	}
	return toSecret(current)
}

func toSecret(u *unstructured.Unstructured) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, secret); err != nil {
		return nil, errors.New("read the Secret: its content does not have the form of a Secret") // err could show it
	}
	return secret, nil
}
