// Package register applies the objects through which the API server calls Opgate, where no client applies them as Helm
// and kubectl do: OLM rejects webhooks for its own kinds in a bundle, so that a pod that OLM runs has to bring them
// itself.
package register

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/blang/semver/v4"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/opgate/opgate/internal/metakey"
)

const (
	// fieldManager owns what the manifests say. Nothing in them is written by package certs, so applying them again
	// takes nothing away.
	fieldManager = "opgate-register"
)

// clusterRoles is the kind that may own webhook configurations: OLM deletes the ClusterRoles of an operator that is
// removed.
var clusterRoles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1",
	Resource: "clusterroles"}

// Options configure Apply. All fields are required.
type Options struct {
	Client dynamic.Interface
	// Directory holds the manifests, in files that end in .yaml.
	Directory string
	// Namespace is the one of Opgate. Webhooks that call another one are rejected.
	Namespace string
	// Owner is the ClusterRole that webhook configurations are deleted with.
	Owner string
	Log   logr.Logger
}

// Apply reads the manifests and applies them, definitions first. It leaves an object alone that a later version of
// Opgate has applied: during an upgrade a pod of the version before may start again. It returns an error, and applies
// nothing, if a manifest cannot be used or the owner does not exist.
func Apply(ctx context.Context, o Options) error {
	objects, err := read(o.Directory)
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	for _, object := range objects {
		if err := wantNamespace(object, o.Namespace); err != nil {
			return fmt.Errorf("register: %w", err)
		}
	}
	owner, err := o.owner(ctx)
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	for _, object := range objects {
		if object.GetKind() != definitionKind {
			object.SetOwnerReferences([]metav1.OwnerReference{owner})
		}
		if err := o.apply(ctx, object); err != nil {
			return fmt.Errorf("register: %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// owner returns a reference to the owner. Without one, webhooks would stay when Opgate is removed, and refuse all that
// they are for.
func (o *Options) owner(ctx context.Context) (metav1.OwnerReference, error) {
	role, err := o.Client.Resource(clusterRoles).Get(ctx, o.Owner, metav1.GetOptions{})
	if err != nil {
		return metav1.OwnerReference{},
			fmt.Errorf("read the owner of the webhook configurations, ClusterRole %s, which is part of the bundle: %w",
				o.Owner, err)
	}
	return metav1.OwnerReference{APIVersion: clusterRoles.GroupVersion().String(), Kind: "ClusterRole",
		Name: role.GetName(), UID: role.GetUID()}, nil
}

// apply applies an object unless it is of a later version.
func (o *Options) apply(ctx context.Context, object *unstructured.Unstructured) error {
	client := o.Client.Resource(kinds[object.GetKind()])
	current, err := client.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil && later(current.GetLabels()[metakey.Version], object.GetLabels()[metakey.Version]) {
		o.Log.Info("left as a later version has registered it", "kind", object.GetKind(), "name", object.GetName(),
			"version", current.GetLabels()[metakey.Version])
		return nil
	}
	// By force: these objects may have been applied by Helm or kubectl before, or come from another controller.
	if _, err := client.Apply(ctx, object.GetName(), object,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
		return err
	}
	o.Log.Info("registered", "kind", object.GetKind(), "name", object.GetName(),
		"version", object.GetLabels()[metakey.Version])
	return nil
}

// later reports whether version a is later than b; false if either is no version.
func later(a, b string) bool {
	first, err := semver.ParseTolerant(a)
	second, err2 := semver.ParseTolerant(b)
	return err == nil && err2 == nil && first.GT(second)
}

// wantNamespace returns an error for each webhook of an object that calls another namespace. Opgate's namespace is not
// judged, so one that is shared with other operators would exempt these.
func wantNamespace(object *unstructured.Unstructured, namespace string) error {
	var errs []error
	for _, called := range calledNamespaces(object) {
		if called != namespace {
			errs = append(errs, fmt.Errorf(
				"%s %s calls namespace %s, this process runs in %s: install the bundle in namespace %s, "+
					"which must hold nothing else, since it is not judged", object.GetKind(), object.GetName(), called,
				namespace, called))
		}
	}
	return errors.Join(errs...)
}

// calledNamespaces returns the namespaces of the Services that the API server calls by an object, each once.
func calledNamespaces(object *unstructured.Unstructured) []string {
	var namespaces []string
	add := func(fields map[string]any, path ...string) {
		if namespace, found, _ := unstructured.NestedString(fields,
			append(path, "clientConfig", "service", "namespace")...); found {
			namespaces = append(namespaces, namespace)
		}
	}
	add(object.Object, "spec", "conversion", "webhook")
	entries, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
	for _, entry := range entries {
		if fields, ok := entry.(map[string]any); ok {
			add(fields)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}
