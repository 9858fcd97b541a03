package policy

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/rules/dependency"
)

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
	delete(annotations, dependency.AnnotationPending) // only Opgate sets it
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
	for _, label := range []string{dependency.LabelClusterName, dependency.LabelPlainClusterName} {
		if name := parent.Labels[label]; name != "" {
			cluster = name
			break
		}
	}
	return map[string]string{
		dependency.LabelPolicy:      parent.Name,
		dependency.LabelClusterName: cluster, dependency.LabelPlainClusterName: cluster,
		dependency.LabelClusterNamespace: parent.Namespace, dependency.LabelPlainClusterNamespace: parent.Namespace,
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
	annotations[dependency.AnnotationPending] = pending
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
	delete(annotations, dependency.AnnotationPending)
	if pending != "" {
		annotations = labels.Merge(annotations, map[string]string{dependency.AnnotationPending: pending})
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
