package policy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
	ref := dependency.RefOf(written)
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
		owned[dependency.RefOf(u)] = u
	}
	return owned
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
	object := apply.Head(snapshot.Policies, stored.Key())
	err = r.writer.Patch(ctx, object,
		apply.Merge(map[string]any{"metadata": map[string]any{"resourceVersion": stored.ResourceVersion,
			"finalizers": finalizers}}))
	switch {
	case apply.Outdated(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("write the finalizers of Policy %s: %w", stored.Key(), err)
	}
	return false, r.writer.Patched(ctx, snapshot.Policies, snapshot.InCluster(), object)
}

// kindFault returns why no object of a template's kind can be created, "" if it can. Kind is what the cluster serves,
// ok reports whether it is served; forbidden is why the objects of the kind may not be watched.
func kindFault(t *dependency.Template, kind watches.Kind, ok bool, o *Controller, forbidden error) string {
	ref := t.Ref
	switch {
	case o.Grants.MissingKind(ref.Group, ref.Kind) != "":
		return fmt.Sprintf("%s: %s", ref, o.Grants.MissingKind(ref.Group, ref.Kind))
	case ref.Gatekeeper() && !o.Gatekeeper:
		return fmt.Sprintf("%s is of a kind of Gatekeeper's, which templates may not be here: start Opgate with --gatekeeper-templates (chart value ordering.gatekeeper)", ref)
	case !ok && ref.Group == dependency.GatekeeperConstraintGroup:
		return fmt.Sprintf("%s: kind %s is not served: the ConstraintTemplate that makes it is missing, or Gatekeeper has not processed it", ref, ref.Kind)
	case !ok && ref.Gatekeeper():
		return fmt.Sprintf("%s: kind %s is not served: install Gatekeeper", ref, ref.Kind)
	case !ok && ref.Group == "":
		return fmt.Sprintf("%s: kind %s is not one that templates may be: put it into a ConfigurationPolicy", ref,
			ref.Kind)
	case !ok:
		return fmt.Sprintf("%s: no CustomResourceDefinition serves kind %s of group %s: install it", ref, ref.Kind,
			ref.Group)
	case !slices.Contains(kind.Versions, t.Version):
		return fmt.Sprintf("%s: kind %s of group %s is served as %s, and not as %q", ref, ref.Kind, ref.Group,
			strings.Join(kind.Versions, ", "), t.Version)
	case !kind.Template:
		return fmt.Sprintf("%s: kind %s is not one that templates may be: its CustomResourceDefinition %s.%s has no label %s=%s",
			ref, ref.Kind, kind.Plural, kind.Group, dependency.LabelTemplate, dependency.LabelTemplateValue)
	case forbidden != nil:
		return fmt.Sprintf("%s: opgate may not list and watch %s.%s, and makes nothing that it cannot see: grant it (chart value ordering.rules)", ref, kind.Plural, kind.Group)
	}
	return ""
}

// outcome is what a failed write means for the template.
type outcome int

const (
	// retried writes are repeated without a report: what they were decided on has changed.
	retried outcome = iota
	// contested objects exist already: their owner has to be determined.
	contested
	// refused writes are repeated only when the template changes.
	refused
	// denied writes are retried with backoff, since RBAC changes cannot be watched.
	denied
	// failed writes are retried with a short delay, and reported if they keep failing.
	failed
)

// classify returns what a failed write means.
func classify(err error) outcome {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err),
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return retried
	case apierrors.IsAlreadyExists(err):
		return contested
	case byEnd(err):
		return failed
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return denied
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err),
		apierrors.IsMethodNotSupported(err):
		return refused
	case errors.As(err, &status) && status.Status().Code == http.StatusUnprocessableEntity:
		return refused
	}
	return failed
}

// writeFault returns why the object of a template could not be written.
func writeFault(verb string, ref dependency.Ref, kind watches.Kind, err error) string {
	text := fmt.Sprintf("%s could not be %sd: %s", ref, verb, sentence(err))
	if apierrors.IsForbidden(err) && !byWebhook(err) && !byEnd(err) && !byQuota(err) {
		return fmt.Sprintf("opgate may not %s %s.%s: grant it (chart value ordering.rules): %s", verb, kind.Plural,
			kind.Group, text)
	}
	return text
}

// byWebhook reports whether a webhook refused, which may be Opgate's own, rather than RBAC.
func byWebhook(err error) bool { return strings.Contains(err.Error(), "admission webhook ") }

// byEnd reports whether the definition of the kind is being deleted, or was until recently and the API server does not
// serve the recreated one yet. The API server answers with forbidden, but no permission is missing.
func byEnd(err error) bool {
	return strings.Contains(err.Error(), "not allowed while custom resource definition is terminating")
}

// byQuota reports whether the cause is not RBAC: messages of admission plugins do not mention users.
func byQuota(err error) bool { return !strings.Contains(err.Error(), "cannot ") }

// sentence returns the API server's message without the line breaks that some webhooks add.
func sentence(err error) string {
	var status apierrors.APIStatus
	text := err.Error()
	if errors.As(err, &status) && status.Status().Message != "" {
		text = status.Status().Message
	}
	return strings.Join(strings.Fields(text), " ")
}
