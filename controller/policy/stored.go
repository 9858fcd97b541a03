package policy

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	"github.com/opgate/opgate/rules/dependency"
)

// storedPolicy is a Policy as it is stored, and what was read of it.
type storedPolicy struct {
	metav1.ObjectMeta
	// object is nil if the Policy does not decode: then there is no status that could be written without losing something.
	object *policyv1.Policy
	read   *dependency.Policy
}

// storedSet is a PolicySet as it is stored, and what was read of it.
type storedSet struct {
	metav1.ObjectMeta
	object *policyv1beta1.PolicySet
	read   *dependency.Set
}

func (p *storedPolicy) key() types.NamespacedName { return keyOf(p) }
func (s *storedSet) key() types.NamespacedName    { return keyOf(s) }

// known is what was read, nil where there is nothing.
func (p *storedPolicy) known() *dependency.Policy {
	if p == nil {
		return nil
	}
	return p.read
}

func (s *storedSet) known() *dependency.Set {
	if s == nil {
		return nil
	}
	return s.read
}

func (p *storedPolicy) disabled() bool { return p.read != nil && p.read.Disabled }

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// readPolicy reads a Policy as it arrives, once for all who look at it. One that does not decode must not stop the watch.
func readPolicy(u *unstructured.Unstructured) (any, error) {
	stored := &storedPolicy{ObjectMeta: headOf(u)}
	object := &policyv1.Policy{}
	if err := decode(u, object); err != nil {
		return stored, fmt.Errorf("decode Policy %s: %w", stored.key(), err)
	}
	object.ManagedFields = nil
	stored.ObjectMeta, stored.object, stored.read = object.ObjectMeta, object, dependency.Read(object)
	return stored, nil
}

// readSet does for a PolicySet what readPolicy does for a Policy.
func readSet(u *unstructured.Unstructured) (any, error) {
	stored := &storedSet{ObjectMeta: headOf(u)}
	object := &policyv1beta1.PolicySet{}
	if err := decode(u, object); err != nil {
		return stored, fmt.Errorf("decode PolicySet %s: %w", stored.key(), err)
	}
	object.ManagedFields = nil
	stored.ObjectMeta, stored.object, stored.read = object.ObjectMeta, object, dependency.ReadSet(object)
	return stored, nil
}

func headOf(u *unstructured.Unstructured) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), Generation: u.GetGeneration(), ResourceVersion: u.GetResourceVersion(),
		DeletionTimestamp: u.GetDeletionTimestamp(), Finalizers: u.GetFinalizers(), Labels: u.GetLabels(), Annotations: u.GetAnnotations()}
}

func decode(u *unstructured.Unstructured, into any) error {
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, into)
}
