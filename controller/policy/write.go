package policy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
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
	"sigs.k8s.io/controller-runtime/pkg/log"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// write writes a template object once and waits until the watches show it. Version is the version that the object is
// written in. Fields that the API server does not know are refused, not dropped.
func (r *reconciler) write(
	ctx context.Context, parent types.NamespacedName, verb string, kind *snapshot.Definition, version string,
	object *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	resource := r.objects.Resource(schema.GroupVersionResource{Group: kind.Group, Version: version, Resource: kind.Plural}).
		Namespace(object.GetNamespace())
	var written *unstructured.Unstructured
	var err error
	switch verb {
	case apply.Create:
		written, err = resource.Create(ctx, object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	case apply.Update:
		written, err = resource.Update(ctx, object, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	case apply.Delete:
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
		if verb == apply.Delete {
			return now == nil || now.GetUID() != written.GetUID() || now.GetDeletionTimestamp() != nil
		}
		return now != nil && !snapshot.Older(now.GetResourceVersion(), written.GetResourceVersion())
	})
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

var (
	// errOutdated is the error of a write that is repeated without a report: what it was decided on has changed.
	errOutdated = errors.New("what the write was decided on has changed")
	// errExists is that of an object that exists already: its owner has to be determined.
	errExists = fmt.Errorf("the object exists: %w", errOutdated)
)

// refusal is the error of a write that the API server refuses, as the template reports it.
type refusal string

func (r refusal) Error() string { return string(r) }

// classify returns what a failed write means. All errors but these two are retried with the backoff of the queue; those
// of an API server that does not answer now are not reported.
func classify(verb string, ref dependency.Ref, kind *snapshot.Definition, err error) error {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err),
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return errOutdated
	case apierrors.IsAlreadyExists(err):
		return errExists
	case !errors.As(err, &status), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err),
		apierrors.IsServerTimeout(err), apierrors.IsTimeout(err),
		// the API server does not serve a recreated definition at once
		strings.Contains(err.Error(), "not allowed while custom resource definition is terminating"):
		return err
	}
	return refusal(writeFault(verb, ref, kind, err))
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
	given, _, err := unstructured.NestedStringMap(content, "metadata", "labels")
	if err != nil {
		return nil, fmt.Errorf("objectDefinition.metadata.labels must be strings, put others in quotes: %w", err)
	}
	annotations, _, err := unstructured.NestedStringMap(content, "metadata", "annotations")
	if err != nil {
		return nil, fmt.Errorf("objectDefinition.metadata.annotations must be strings, put others in quotes: %w", err)
	}
	object.SetLabels(labels.Merge(given, labelsOf(parent)))
	delete(annotations, metakey.Pending) // only Opgate sets it
	object.SetAnnotations(annotations)
	if namespaced {
		object.SetNamespace(parent.Namespace)
		object.SetOwnerReferences([]metav1.OwnerReference{*ownerOf(parent)})
	}
	return &desired{object: object, hash: hashOf(content)}, nil
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

// hashOf returns the hash of what was decoded from JSON, or of strings: both encode.
func hashOf(content any) hash {
	raw, _ := json.Marshal(content) // sorts the keys
	return sha256.Sum256(raw)
}

// onto returns the object that is created, or that replaces a live one: then its metadata with that of the template
// applied over it, and exactly the template's contents. Pending is the mark of a suspended policy, "" for none.
func (d *desired) onto(
	live *unstructured.Unstructured, parent *policyv1.Policy, pending string,
) *unstructured.Unstructured {
	object := d.object.DeepCopy()
	annotations := object.GetAnnotations()
	if live != nil {
		object.SetUID(live.GetUID())
		object.SetResourceVersion(live.GetResourceVersion())
		object.SetFinalizers(live.GetFinalizers())
		object.SetLabels(labels.Merge(live.GetLabels(), d.object.GetLabels()))
		annotations = labels.Merge(live.GetAnnotations(), annotations)
		object.SetOwnerReferences(d.owners(live, parent))
	}
	delete(annotations, metakey.Pending)
	if pending != "" {
		annotations = labels.Merge(annotations, map[string]string{metakey.Pending: pending})
	}
	object.SetAnnotations(annotations)
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

// asWritten returns the record of a live object after this was written. Of its metadata it has a hash of those that the
// template sets, as they are stored: mutating webhooks may store a value in another form.
func (d *desired) asWritten(live *unstructured.Unstructured, parent *policyv1.Policy) written {
	metadata := hashOf([]any{pick(live.GetLabels(), d.object.GetLabels()),
		pick(live.GetAnnotations(), d.object.GetAnnotations()), metav1.IsControlledBy(live, parent)})
	return written{uid: live.GetUID(), generation: live.GetGeneration(), metadata: metadata, desired: d.hash}
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
