package certs

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/opgate/opgate/internal/watched"
)

var (
	secretsResource    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	namespacesResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// object is one watched object.
type object struct{ *watched.Object }

// watchObject returns an object to watch, with namespace "" if it is cluster-scoped. Changed is called after each
// change. The caller runs the informer.
func watchObject(
	client dynamic.Interface, resource schema.GroupVersionResource, namespace, name string, changed func(),
	log logr.Logger,
) (*object, error) {
	o, err := watched.New(client, resource, namespace, name, changed, log)
	return &object{o}, err
}

// secret returns the object as a Secret, nil if it does not exist.
func (o *object) secret() (*corev1.Secret, error) {
	current := o.Get()
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

// write writes an object with the field manager of the bundles: it creates one that has no resourceVersion yet, and
// otherwise replaces the version that was read.
func (o *object) write(
	ctx context.Context, kind schema.GroupVersionKind, content runtime.Object,
) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(content)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(kind)
	if u.GetResourceVersion() == "" {
		return o.Client.Create(ctx, u, metav1.CreateOptions{FieldManager: bundleManager})
	}
	return o.Client.Update(ctx, u, metav1.UpdateOptions{FieldManager: bundleManager})
}
