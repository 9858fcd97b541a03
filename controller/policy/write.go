package policy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/log"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/internal/metakey"
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
	ctx context.Context, parent types.NamespacedName, verb string, kind *snapshot.Definition, version string,
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
		uid, version := object.GetUID(), object.GetResourceVersion()
		written, err = object, resource.Delete(ctx, object.GetName(),
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
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
		now := r.watches.Owned(parent)[ref]
		if verb == remove {
			return now == nil || now.GetUID() != written.GetUID() || now.GetDeletionTimestamp() != nil
		}
		return now != nil && !snapshot.Older(now.GetResourceVersion(), written.GetResourceVersion())
	})
}

func (r *reconciler) resource(kind *snapshot.Definition, version, namespace string) dynamic.ResourceInterface {
	all := r.objects.Resource(schema.GroupVersionResource{Group: kind.Group, Version: version, Resource: kind.Plural})
	if kind.Namespaced {
		return all.Namespace(namespace)
	}
	return all
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
	object.ResourceVersion = stored.ResourceVersion
	err = r.writer.Patch(ctx, object, map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	switch {
	case apply.Outdated(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("write the finalizers of Policy %s: %w", stored.Key(), err)
	}
	return false, r.writer.Patched(ctx, snapshot.Policies, snapshot.InCluster(), object)
}

// kindFault returns why no object of a template's kind can be created, "" if it can. Kind is nil if it is not served;
// forbidden is why the objects of the kind may not be watched.
func (c *Controller) kindFault(t *dependency.Template, kind *snapshot.Definition, forbidden error) string {
	ref := t.Ref
	switch {
	case c.Grants.MissingKind(ref.Group, ref.Kind) != "":
		return fmt.Sprintf("%s: %s", ref, c.Grants.MissingKind(ref.Group, ref.Kind))
	case ref.Gatekeeper() && !c.Gatekeeper:
		return fmt.Sprintf("%s is of a kind of Gatekeeper's, which templates may not be here: start Opgate with --gatekeeper-templates (chart value ordering.gatekeeper)", ref)
	case kind == nil && ref.Group == dependency.GatekeeperConstraintGroup:
		return fmt.Sprintf("%s: kind %s is not served: the ConstraintTemplate that makes it is missing, or Gatekeeper has not processed it", ref, ref.Kind)
	case kind == nil && ref.Gatekeeper():
		return fmt.Sprintf("%s: kind %s is not served: install Gatekeeper", ref, ref.Kind)
	case kind == nil && ref.Group == "":
		return fmt.Sprintf("%s: kind %s is not one that templates may be: put it into a ConfigurationPolicy", ref,
			ref.Kind)
	case kind == nil:
		return fmt.Sprintf("%s: no CustomResourceDefinition serves kind %s of group %s: install it", ref, ref.Kind,
			ref.Group)
	case !slices.Contains(kind.Versions, t.Version):
		return fmt.Sprintf("%s: kind %s of group %s is served as %s, and not as %q", ref, ref.Kind, ref.Group,
			strings.Join(kind.Versions, ", "), t.Version)
	case !kind.Template:
		return fmt.Sprintf("%s: kind %s is not one that templates may be: its CustomResourceDefinition %s.%s has no label %s=%s",
			ref, ref.Kind, kind.Plural, kind.Group, metakey.PolicyType, dependency.LabelTemplateValue)
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
	// refused writes are retried with backoff, since what refuses them, such as RBAC, cannot be watched.
	refused
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
	case strings.Contains(err.Error(), "not allowed while custom resource definition is terminating"),
		apierrors.IsTooManyRequests(err):
		// no right is missing; the API server does not serve a recreated definition at once
		return failed
	case errors.As(err, &status) && status.Status().Code >= http.StatusBadRequest &&
		status.Status().Code < http.StatusInternalServerError:
		return refused
	}
	return failed
}

// writeFault returns why the object of a template could not be written.
func writeFault(verb string, ref dependency.Ref, kind *snapshot.Definition, err error) string {
	text := fmt.Sprintf("%s could not be %sd: %s", ref, verb, sentence(err))
	if strings.Contains(text, fmt.Sprintf(" cannot %s resource %q", verb, kind.Plural)) { // by RBAC
		return fmt.Sprintf("opgate may not %s %s.%s: grant it (chart value ordering.rules): %s", verb, kind.Plural,
			kind.Group, text)
	}
	return text
}

// sentence returns the API server's message without the line breaks that some webhooks add.
func sentence(err error) string {
	var status apierrors.APIStatus
	text := err.Error()
	if errors.As(err, &status) && status.Status().Message != "" {
		text = status.Status().Message
	}
	return strings.Join(strings.Fields(text), " ")
}

// desired is the desired object of a template.
type desired struct {
	// object is what is created. It must not be modified.
	object *unstructured.Unstructured
	// hash is computed over the whole object.
	hash hash
}

type hash = [sha256.Size]byte

// serverFields are fields of metadata that the API server or a deletion sets.
var serverFields = []string{"namespace", "ownerReferences", "managedFields", "resourceVersion", "uid", "generation",
	"generateName", "creationTimestamp",
	"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}

// desire returns the object of a template: in the namespace of the Policy if its kind is namespaced, with the labels
// and the owner reference that identify its Policy, and with the values that the Policy overrides.
func desire(parent *policyv1.Policy, template *policyv1.PolicyTemplate, namespaced bool) (*desired, error) {
	content := map[string]any{}
	if err := utiljson.Unmarshal(template.ObjectDefinition.Raw, &content); err != nil {
		return nil, fmt.Errorf("objectDefinition: %w", err)
	}
	if err := dependency.Override(content, parent); err != nil {
		return nil, err
	}
	delete(content, "status")
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		return nil, errors.New("objectDefinition.metadata is not an object")
	}
	for _, field := range serverFields {
		delete(metadata, field)
	}
	object := &unstructured.Unstructured{Object: content}
	given, err := texts(metadata, "labels")
	if err != nil {
		return nil, err
	}
	annotations, err := texts(metadata, "annotations")
	if err != nil {
		return nil, err
	}
	object.SetLabels(labels.Merge(given, labelsOf(parent)))
	delete(annotations, metakey.Pending) // only Opgate sets it
	object.SetAnnotations(annotations)
	if namespaced {
		object.SetNamespace(parent.Namespace)
		object.SetOwnerReferences([]metav1.OwnerReference{*ownerOf(parent)})
	}
	sum, err := hashOf(content)
	if err != nil {
		return nil, err
	}
	return &desired{object: object, hash: sum}, nil
}

// texts returns labels or annotations, whose values must be strings.
func texts(metadata map[string]any, field string) (map[string]string, error) {
	given, ok := metadata[field].(map[string]any)
	if !ok && metadata[field] != nil {
		return nil, fmt.Errorf("objectDefinition.metadata.%s is not an object", field)
	}
	all := make(map[string]string, len(given))
	for _, key := range slices.Sorted(maps.Keys(given)) {
		value, ok := given[key].(string)
		if !ok {
			return nil, fmt.Errorf("objectDefinition.metadata.%s: %s is %v, which is not a string: put it in quotes",
				field, key, given[key])
		}
		all[key] = value
	}
	return all, nil
}

// labelsOf returns the labels that identify the objects of a Policy. The cluster is named by the Policy's own labels if
// a hub has set them; otherwise by the namespace, as no other name of it is known here.
func labelsOf(parent *policyv1.Policy) map[string]string {
	cluster := parent.Namespace
	for _, label := range []string{metakey.ClusterName, metakey.PlainClusterName} {
		if name := parent.Labels[label]; name != "" {
			cluster = name
			break
		}
	}
	return map[string]string{
		metakey.Policy:      parent.Name,
		metakey.ClusterName: cluster, metakey.PlainClusterName: cluster,
		metakey.ClusterNamespace: parent.Namespace, metakey.PlainClusterNamespace: parent.Namespace,
	}
}

func ownerOf(parent *policyv1.Policy) *metav1.OwnerReference {
	return metav1.NewControllerRef(parent, policyv1.GroupVersion.WithKind(policyv1.Kind))
}

func hashOf(content any) (hash, error) {
	raw, err := json.Marshal(content) // sorts the keys
	if err != nil {
		return hash{}, fmt.Errorf("encode the object: %w", err)
	}
	return sha256.Sum256(raw), nil
}

// suspended returns the object with the mark of a suspended policy, or without.
func (d *desired) suspended(pending string) *unstructured.Unstructured {
	if pending == "" {
		return d.object
	}
	object := d.object.DeepCopy()
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[metakey.Pending] = pending
	object.SetAnnotations(annotations)
	return object
}

// replacement returns what replaces a live object: its metadata with that of the template applied over it, and exactly the
// template's contents. Pending is the mark of a suspended policy, "" for none.
func (d *desired) replacement(
	live *unstructured.Unstructured, parent *policyv1.Policy, pending string,
) *unstructured.Unstructured {
	object := d.object.DeepCopy()
	object.SetUID(live.GetUID())
	object.SetResourceVersion(live.GetResourceVersion())
	object.SetFinalizers(live.GetFinalizers())
	object.SetLabels(labels.Merge(live.GetLabels(), d.object.GetLabels()))
	annotations := labels.Merge(live.GetAnnotations(), d.object.GetAnnotations())
	delete(annotations, metakey.Pending)
	if pending != "" {
		annotations = labels.Merge(annotations, map[string]string{metakey.Pending: pending})
	}
	object.SetAnnotations(annotations)
	object.SetOwnerReferences(d.owners(live, parent))
	return object
}

// owners returns the owners of a live object with the Policy added, in place of a deleted Policy of the same name.
func (d *desired) owners(live *unstructured.Unstructured, parent *policyv1.Policy) []metav1.OwnerReference {
	owners := live.GetOwnerReferences()
	if d.object.GetNamespace() == "" {
		return owners
	}
	owners = slices.DeleteFunc(owners, func(o metav1.OwnerReference) bool {
		gv, err := schema.ParseGroupVersion(o.APIVersion)
		return o.Name == parent.Name && o.Kind == policyv1.Kind && err == nil && gv.Group == policyv1.Group
	})
	return append(owners, *ownerOf(parent))
}

// metadataHash returns a hash of those metadata of a live object that the template sets. It is compared with the hash after the
// last write, not with the template: mutating webhooks may store a value in another form.
func (d *desired) metadataHash(live *unstructured.Unstructured, parent *policyv1.Policy) (hash, error) {
	return hashOf([]any{pick(live.GetLabels(), d.object.GetLabels()),
		pick(live.GetAnnotations(), d.object.GetAnnotations()), metav1.IsControlledBy(live, parent)})
}

// asWritten returns the record of a live object after this was written.
func (d *desired) asWritten(live *unstructured.Unstructured, parent *policyv1.Policy) (written, error) {
	metadata, err := d.metadataHash(live, parent)
	return written{uid: live.GetUID(), generation: live.GetGeneration(), metadata: metadata, desired: d.hash}, err
}

// pick returns the entries of a map whose keys exist in another one.
func pick(all, some map[string]string) map[string]string {
	kept := map[string]string{}
	for key := range some {
		if value, ok := all[key]; ok {
			kept[key] = value
		}
	}
	return kept
}
