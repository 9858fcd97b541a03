package admission

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/stream"
)

// source is one resource that the snapshot follows.
type source struct {
	resource schema.GroupVersionResource
	// read decodes an object, and tells which namespace it concerns and how it is added to a cluster. An
	// object that counts for nothing gives a nil add.
	read func(raw []byte) (read, error)
	// salvage stands in for read where that fails; nil leaves the object out.
	salvage func(m *metav1.ObjectMeta, raw []byte, cause error) read
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
	ordered    *dependency.Policy
	members    *dependency.Set
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

var sources = []source{
	{policyv1beta2.GroupVersion.WithResource(resourcePolicies), readPolicy, salvagePolicy},
	{constraintv1.GroupVersion.WithResource(resourceConstraints), readConstraint, salvageConstraint},
	{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, readNamespace, nil},
	{olm.Subscriptions, readSubscription, nil},
	{olm.InstallPlans, readPlan, nil},
	{olm.ClusterServiceVersions, readCSV, salvageCSV},
	{olm.OperatorGroups, readOperatorGroup, nil},
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
	return read{ordered: dependency.Read(p)}, nil
}

func readMembers(raw []byte) (read, error) {
	s := &policyv1beta1.PolicySet{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, s); err != nil {
		return read{}, err
	}
	return read{members: dependency.ReadSet(s)}, nil
}

func readPolicy(raw []byte) (read, error) {
	op, strict, err := rules.DecodeOperatorPolicy(raw)
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
func salvageConstraint(m *metav1.ObjectMeta, _ []byte, cause error) read {
	object := &constraintv1.Constraint{ObjectMeta: metav1.ObjectMeta{Name: m.Name, UID: m.UID, Generation: m.Generation}}
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
func salvagePolicy(m *metav1.ObjectMeta, raw []byte, cause error) read {
	picked := stream.Pick(raw, stream.Fields{"spec": {"subscription": {"namespace": nil, "name": nil}}})
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(picked, fields...) // a value of another type names nothing
		return s
	}
	p := rules.UnreadablePolicy(m.Namespace, m.Name,
		text("spec", "subscription", "namespace"), text("spec", "subscription", "name"), cause)
	return read{concerns: p.Concerns(), add: func(c *rules.Cluster) { c.AddPolicy(p) }}
}

// salvageCSV keeps what does not decode as something that is installed, of a package that is not known. The copies that OLM makes of
// it are left out, as in readCSV.
func salvageCSV(m *metav1.ObjectMeta, raw []byte, _ error) read {
	picked := stream.Pick(raw, stream.Fields{"metadata": {"labels": {olm.CopiedFromLabel: nil}}})
	if copied, _, _ := unstructured.NestedString(picked, "metadata", "labels", olm.CopiedFromLabel); copied != "" {
		return read{concerns: m.Namespace}
	}
	return read{concerns: m.Namespace, add: func(c *rules.Cluster) { c.AddCSV(m.Namespace, rules.Installed{CSV: m.Name}) }}
}

// readOperatorGroup leaves out one that does not decode: without any, operators of the namespace count as those for all.
func readOperatorGroup(raw []byte) (read, error) {
	g, err := olm.DecodeOperatorGroup(raw)
	if err != nil {
		return read{}, err
	}
	g.Metadata = olm.ObjectMeta{Name: g.Metadata.Name, Namespace: g.Metadata.Namespace}
	return read{concerns: g.Metadata.Namespace, add: func(c *rules.Cluster) { c.AddOperatorGroup(g) }}, nil
}

func readSubscription(raw []byte) (read, error) {
	s, err := olm.DecodeSubscription(raw)
	if err != nil {
		return read{}, err
	}
	s.Metadata.Annotations.Properties, s.Metadata.Annotations.AuthorProperties = "", "" // not of a Subscription
	return read{concerns: s.Metadata.Namespace, add: func(c *rules.Cluster) { c.AddSubscription(s) }}, nil
}

func readPlan(raw []byte) (read, error) {
	p, err := olm.DecodePlan(raw)
	if err != nil {
		return read{}, err
	}
	rules.PreparePlan(p)
	p.Trim()
	return read{concerns: p.Metadata.Namespace, add: func(c *rules.Cluster) { c.AddPlan(p) }}, nil
}

func readCSV(raw []byte) (read, error) {
	csv, err := olm.DecodeCSV(raw)
	if err != nil {
		return read{}, err
	}
	namespace := csv.Metadata.Namespace
	installed, here := rules.InstalledBy(csv)
	if !here {
		return read{concerns: namespace}, nil
	}
	return read{concerns: namespace, add: func(c *rules.Cluster) { c.AddCSV(namespace, installed) }}, nil
}

// identity are the fields by which an informer knows an object.
var identity = stream.Fields{"metadata": {"name": nil, "namespace": nil, "uid": nil, "resourceVersion": nil, "generation": nil,
	"annotations": {metav1.InitialEventsAnnotationKey: nil}}}

// decode makes an item of each object as it arrives, from its JSON: manifests of hundreds of kilobytes are not kept, and objects are
// decoded by the same code as in reviews.
func (f *Feed) decode(src source) stream.Decode {
	return func(raw []byte) (runtime.Object, error) {
		picked := stream.Pick(raw, identity)
		text := func(fields ...string) string {
			s, _, _ := unstructured.NestedString(picked, append([]string{"metadata"}, fields...)...) // the API server writes them
			return s
		}
		it := &item{ObjectMeta: metav1.ObjectMeta{Namespace: text("namespace"), Name: text("name"), UID: types.UID(text("uid")), ResourceVersion: text("resourceVersion")}}
		it.Generation, _, _ = unstructured.NestedInt64(picked, "metadata", "generation")
		if end := text("annotations", metav1.InitialEventsAnnotationKey); end != "" { // a bookmark, which ends a list that comes by a watch
			it.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: end}
		}
		it.read = f.read(src, &it.ObjectMeta, raw)
		if it.add == nil {
			it.add = func(*rules.Cluster) {}
		}
		return it, nil
	}
}

func (f *Feed) read(src source, m *metav1.ObjectMeta, raw []byte) read {
	r, err := f.readRaw(src, raw)
	if err == nil {
		return r
	}
	f.Log.Error(err, "object cannot be read", "resource", src.resource.Resource, "namespace", m.Namespace, "name", m.Name)
	if src.salvage == nil {
		return read{concerns: m.Namespace}
	}
	return src.salvage(m, raw, fmt.Errorf("decode the stored object: %w", err))
}

// readRaw turns a panic into an error: one stored object must not end the process, and every next one as well.
func (f *Feed) readRaw(src source, raw []byte) (r read, err error) {
	if f.Panics == nil {
		return src.read(raw)
	}
	if f.Panics.Run(src.resource.Resource, func() { r, err = src.read(raw) }) {
		return read{}, errors.New("opgate failed while it read the object; its log says where")
	}
	return r, err
}
