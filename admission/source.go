package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	kjson "sigs.k8s.io/json"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/ordering"
)

// source is one resource that the snapshot follows.
type source struct {
	resource schema.GroupVersionResource
	// read decodes an object, and tells which namespace it concerns and how it is added to a cluster. An
	// object that counts for nothing gives a nil add.
	read func(raw []byte) (read, error)
	// salvage stands in for read where that fails; nil leaves the object out.
	salvage func(u *unstructured.Unstructured, cause error) read
}

// read is what was read of an object.
type read struct {
	concerns string
	add      func(*rules.Cluster)
	policy   *policyv1beta2.OperatorPolicy
	// faults are fields of the policy that do not exist, or are there twice.
	faults []string
	// constraint is set for Constraints, ordered for Policies, members for PolicySets.
	constraint *storedConstraint
	ordered    *ordering.Policy
	members    *ordering.Set
}

// storedConstraint is a Constraint as it is stored, and made ready for judging.
type storedConstraint struct {
	object     *constraintv1.Constraint
	definition *constraint.Definition
}

const (
	resourcePolicies    = "operatorpolicies"
	resourceConstraints = "constraints"
	resourceOrdered     = policyv1.Resource
	resourceMembers     = policyv1beta1.PolicySetResource
)

var olm = schema.GroupVersion{Group: "operators.coreos.com", Version: "v1alpha1"}

var sources = []source{
	{policyv1beta2.GroupVersion.WithResource(resourcePolicies), readPolicy, salvagePolicy},
	{constraintv1.GroupVersion.WithResource(resourceConstraints), readConstraint, salvageConstraint},
	{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, readNamespace, nil},
	{olm.WithResource("subscriptions"), readSubscription, nil},
	{olm.WithResource("installplans"), readPlan, nil},
	{olm.WithResource("clusterserviceversions"), readCSV, nil},
}

// orderSources say which Policies wait for one another. Nobody waits for them: what a suspended guard holds stands on the
// guard itself.
var orderSources = []source{
	{policyv1.GroupVersion.WithResource(resourceOrdered), readOrdered, nil},
	{policyv1beta1.GroupVersion.WithResource(resourceMembers), readMembers, nil},
}

func readOrdered(raw []byte) (read, error) {
	p := &policyv1.Policy{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, p); err != nil {
		return read{}, err
	}
	return read{ordered: ordering.Read(p)}, nil
}

func readMembers(raw []byte) (read, error) {
	s := &policyv1beta1.PolicySet{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, s); err != nil {
		return read{}, err
	}
	return read{members: ordering.ReadSet(s)}, nil
}

func readPolicy(raw []byte) (read, error) {
	op, strict, err := rules.DecodePolicy(raw)
	if err != nil {
		return read{}, err
	}
	// Admission refuses these; one that was stored before there was any must not read as a policy without them.
	var faults []string
	for _, fault := range strict {
		faults = append(faults, fault.Error()+"; correct it or remove it")
	}
	p := rules.NewPolicy(op)
	if len(faults) > 0 {
		p = rules.CompletedPolicy(op, faults)
	}
	return read{concerns: p.Concerns(), add: func(c *rules.Cluster) { c.AddPolicy(p) }, policy: op, faults: faults}, nil
}

func readConstraint(raw []byte) (read, error) {
	object, strict, err := rules.DecodeConstraint(raw)
	if err != nil {
		return read{}, err
	}
	return read{constraint: &storedConstraint{object, rules.NewDefinition(object, strict)}}, nil
}

// salvageConstraint keeps a stored Constraint that does not decode as one that holds everything (threat G5).
func salvageConstraint(u *unstructured.Unstructured, cause error) read {
	object := &constraintv1.Constraint{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), UID: u.GetUID(), Generation: u.GetGeneration()}}
	return read{constraint: &storedConstraint{object, rules.NewDefinition(object, []error{cause})}}
}

func readNamespace(raw []byte) (read, error) {
	n := &metav1.PartialObjectMetadata{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, n); err != nil {
		return read{}, err
	}
	return read{concerns: n.Name, add: func(c *rules.Cluster) { c.AddNamespace(n.Name, n.Labels, n.DeletionTimestamp != nil) }}, nil
}

// salvagePolicy keeps a stored policy that does not decode as one that holds what it governs: it must not
// disappear (threat G5).
func salvagePolicy(u *unstructured.Unstructured, cause error) read {
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(u.Object, fields...) // a value of another type names nothing
		return s
	}
	p := rules.UnreadablePolicy(u.GetNamespace(), u.GetName(),
		text("spec", "subscription", "namespace"), text("spec", "subscription", "name"), cause)
	return read{concerns: p.Concerns(), add: func(c *rules.Cluster) { c.AddPolicy(p) }}
}

func readSubscription(raw []byte) (read, error) {
	s, err := rules.DecodeSubscription(raw)
	if err != nil {
		return read{}, err
	}
	return read{concerns: s.Metadata.Namespace, add: func(c *rules.Cluster) { c.AddSubscription(s) }}, nil
}

func readPlan(raw []byte) (read, error) {
	p, err := rules.DecodePlan(raw)
	if err != nil {
		return read{}, err
	}
	p.Prepare()
	// A plan has dozens of steps. Judging stored plans needs those of CSVs; explaining a failed one, all of them.
	if p.Status.Phase != rules.PhaseFailed {
		p.Status.Steps = slices.DeleteFunc(p.Status.Steps, func(s rules.Step) bool { return s.Resource.Kind != "ClusterServiceVersion" })
	}
	return read{concerns: p.Metadata.Namespace, add: func(c *rules.Cluster) { c.AddPlan(p) }}, nil
}

func readCSV(raw []byte) (read, error) {
	csv, err := rules.DecodeCSV(raw)
	if err != nil {
		return read{}, err
	}
	namespace := csv.Metadata.Namespace
	installed, here := csv.Installed()
	if !here {
		return read{concerns: namespace}, nil
	}
	return read{concerns: namespace, add: func(c *rules.Cluster) { c.AddCSV(namespace, installed) }}, nil
}

// transform shrinks each object to an item as it arrives, so that manifests of hundreds of kilobytes are
// not kept, and so that objects are decoded by the same code as in reviews.
func (f *Feed) transform(src source) cache.TransformFunc {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil // transformed before, or a tombstone
		}
		r := f.read(src, u)
		it := &item{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()},
			concerns: r.concerns, add: r.add, policy: r.policy, faults: r.faults, constraint: r.constraint, ordered: r.ordered, members: r.members}
		if it.add == nil {
			it.add = func(*rules.Cluster) {}
		}
		return it, nil
	}
}

func (f *Feed) read(src source, u *unstructured.Unstructured) read {
	raw, err := json.Marshal(u.Object)
	if err == nil {
		var r read
		if r, err = src.read(raw); err == nil {
			return r
		}
	}
	f.Log.Error(err, "object cannot be read", "resource", src.resource.Resource, "namespace", u.GetNamespace(), "name", u.GetName())
	if src.salvage == nil {
		return read{concerns: u.GetNamespace()}
	}
	return src.salvage(u, fmt.Errorf("decode the stored object: %w", err))
}

func unstructuredExample() runtime.Object { return &unstructured.Unstructured{} }

func listing(r dynamic.ResourceInterface) cache.ListWithContextFunc {
	return func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.List(ctx, options)
	}
}

func watching(r dynamic.ResourceInterface) cache.WatchFuncWithContext {
	return func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		return r.Watch(ctx, options)
	}
}
