package policy

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// The verbs of writes.
const (
	create = apply.Create
	update = apply.Update
	remove = apply.Delete
)

// write writes a template object once and waits until the watches show it. Version is the version that the object is
// written in. Fields that the API server does not know are refused, not dropped.
func (r *reconciler) write(
	ctx context.Context, parent types.NamespacedName, verb string, kind watches.Kind, version string,
	object *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	resource := r.resource(kind, version, object.GetNamespace())
	var written *unstructured.Unstructured
	var err error
	switch verb {
	case create:
		written, err = resource.Create(ctx, object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	case update:
		written, err = resource.Update(ctx, object, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	case remove:
		uid := object.GetUID()
		written, err = object, resource.Delete(ctx, object.GetName(),
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if apierrors.IsNotFound(err) {
			err = nil
		}
	}
	r.Writes.Wrote(verb, kind.Kind, err)
	if err != nil {
		return nil, err
	}
	log.FromContext(ctx).Info("template written", "verb", verb, "policy", parent, "kind", kind.Kind,
		"namespace", object.GetNamespace(), "name", object.GetName())
	ref := refOf(written)
	return written, r.watches.Changed().Wait(ctx, func() bool {
		now := r.owned(parent)[ref]
		if verb == remove {
			return now == nil || now.GetUID() != written.GetUID() || now.GetDeletionTimestamp() != nil
		}
		return now != nil && !snapshot.Older(now.GetResourceVersion(), written.GetResourceVersion())
	})
}

func (r *reconciler) resource(kind watches.Kind, version, namespace string) dynamic.ResourceInterface {
	all := r.objects.Resource(schema.GroupVersionResource{Group: kind.Group, Version: version, Resource: kind.Plural})
	if kind.Namespaced {
		return all.Namespace(namespace)
	}
	return all
}

// owned returns the objects whose labels name a Policy as their source.
func (r *reconciler) owned(parent types.NamespacedName) map[dependency.Ref]*unstructured.Unstructured {
	owned := map[dependency.Ref]*unstructured.Unstructured{}
	for _, u := range r.watches.Owned(parent) {
		owned[refOf(u)] = u
	}
	return owned
}

func refOf(u *unstructured.Unstructured) dependency.Ref {
	gvk := u.GroupVersionKind()
	return dependency.Ref{Group: gvk.Group, Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
}

// setFinalizer adds or removes the finalizer, which delays the deletion of a Policy until its cluster-scoped objects
// are deleted. It reports whether the Policy was in that state already.
func (r *reconciler) setFinalizer(ctx context.Context, stored *storedPolicy, want bool) (done bool, err error) {
	if slices.Contains(stored.Finalizers, dependency.Finalizer) == want {
		return true, nil
	}
	finalizers := slices.DeleteFunc(slices.Clone(stored.Finalizers),
		func(f string) bool { return f == dependency.Finalizer })
	if want {
		finalizers = append(finalizers, dependency.Finalizer)
	}
	head := apply.Head(snapshot.Policies, stored.Key())
	err = r.writer.Patch(ctx, head,
		apply.Merge(map[string]any{"metadata": map[string]any{"resourceVersion": stored.ResourceVersion,
			"finalizers": finalizers}}))
	switch {
	case apply.Outdated(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("write the finalizers of Policy %s: %w", stored.Key(), err)
	}
	return false, r.writer.Patched(ctx, snapshot.Policies, snapshot.InCluster(), head)
}
