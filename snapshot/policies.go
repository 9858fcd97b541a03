package snapshot

import (
	"strings"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/conversion"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// storedPolicy is an OperatorPolicy as it is stored, and prepared for judging.
type storedPolicy struct {
	// object is nil if it does not decode.
	object *policyv1beta2.OperatorPolicy
	// faults are unknown or duplicate fields.
	faults []string
	policy *operatorpolicy.Policy
}

func decodePolicy(raw []byte) (any, error) {
	raw, err := conversion.Current(raw)
	if err != nil {
		return nil, err
	}
	op, strict, err := rules.DecodeOperatorPolicy(raw)
	if err != nil { // a status in another form, by another program, does not make a policy unreadable
		if raw, err = conversion.WithoutStatus(raw); err == nil {
			op, strict, err = rules.DecodeOperatorPolicy(raw)
		}
	}
	if err != nil {
		return nil, err
	}
	leaveOut(op)
	op.Status = share(&op.Status)
	// Admission refuses these; one that was stored before Opgate was installed must not read as a policy without them.
	var faults []string
	misnamed := false // the field that has no known name may be that of the namespace
	for _, fault := range strict {
		if strings.HasPrefix(fault.Error(), `duplicate field "spec`) {
			return nil, fault // either of the two values may be meant
		}
		misnamed = misnamed ||
			op.Spec.Subscription.Namespace == "" &&
				strings.HasPrefix(fault.Error(), `unknown field "spec.subscription.`)
		faults = append(faults, fault.Error()+"; correct it or remove it")
	}
	p := rules.NewOperatorPolicy(op)
	if len(faults) > 0 {
		p.MarkCompleted(faults)
	}
	if misnamed && !p.AnyNamespace {
		p.Widen(p.AnyPackage, true)
	}
	return &storedPolicy{op, faults, p}, nil
}

// salvagePolicy retains a stored policy that does not decode as one that holds what it may govern: it must not
// disappear.
func salvagePolicy(m *metav1.ObjectMeta, raw []byte, cause error) any {
	var content map[string]any
	if strict, err := kjson.UnmarshalStrict(raw, &content); err != nil || len(strict) > 0 {
		content = nil // of two values, neither counts
	}
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(content, fields...) // a value of another type counts as unset
		return s
	}
	spec := &policyv1beta2.OperatorPolicySpec{}
	spec.RemediationAction = policyv1beta2.RemediationAction(text("spec", "remediationAction"))
	spec.Deletion = policyv1beta2.DeletionAction(text("spec", "deletion"))
	spec.Subscription.Namespace = text("spec", "subscription", "namespace")
	spec.Subscription.Name = text("spec", "subscription", "name")
	p := operatorpolicy.Unreadable(m.Namespace, m.Name, spec, cause)
	return &storedPolicy{policy: p}
}

// Policy is a Policy as it is stored, and in parsed form.
type Policy struct {
	metav1.ObjectMeta
	// Object is nil if the Policy does not decode: writing a status could lose fields.
	Object *policyv1.Policy
	Read   *dependency.Policy
	// graphed is Read or, if the Policy does not decode, what it may suspend.
	graphed *dependency.Policy
}

// PolicySet is a PolicySet as it is stored, and in parsed form.
type PolicySet struct {
	metav1.ObjectMeta
	// Object is nil if the PolicySet does not decode. It has no spec, which Read has.
	Object *policyv1beta1.PolicySet
	Read   *dependency.Set
}

// Key returns the namespace and name of the Policy.
func (p *Policy) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// Known returns the parsed Policy, nil if it does not exist or does not decode.
func (p *Policy) Known() *dependency.Policy {
	if p == nil {
		return nil
	}
	return p.Read
}

// Disabled reports whether the Policy is disabled.
func (p *Policy) Disabled() bool { return p.Read != nil && p.Read.Disabled }

// Key returns the namespace and name of the PolicySet.
func (s *PolicySet) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// Known returns the parsed PolicySet, nil if it does not exist or does not decode.
func (s *PolicySet) Known() *dependency.Set {
	if s == nil {
		return nil
	}
	return s.Read
}

func decodeOrdered(raw []byte) (any, error) {
	object := &policyv1.Policy{}
	if err := decodeObject(raw, object); err != nil {
		return nil, err
	}
	dependency.TrimStatus(&object.Status)
	read := dependency.Read(object)
	return &Policy{ObjectMeta: object.ObjectMeta, Object: object, Read: read, graphed: read}, nil
}

// salvageOrdered retains the metadata of a Policy that does not decode, and what it may suspend: its content cannot be
// trusted, so nothing is changed.
func salvageOrdered(m *metav1.ObjectMeta, raw []byte, _ error) any {
	return &Policy{ObjectMeta: *m, graphed: dependency.Unreadable(m.Namespace, m.Name, raw)}
}

func decodeMembers(raw []byte) (any, error) {
	object := &policyv1beta1.PolicySet{}
	if err := decodeObject(raw, object); err != nil {
		return nil, err
	}
	read := dependency.ReadSet(object)
	// a hub writes placements, and nothing reads them
	object.Spec, object.Status.Placement = policyv1beta1.PolicySetSpec{}, nil
	return &PolicySet{ObjectMeta: object.ObjectMeta, Object: object, Read: read}, nil
}

func salvageMembers(m *metav1.ObjectMeta, _ []byte, _ error) any {
	return &PolicySet{ObjectMeta: *m}
}

// share returns a copy of a status without spare capacity, of which the texts that recur are stored once for all
// policies. A decoded status is the larger part of a policy.
func share(status *policyv1beta2.OperatorPolicyStatus) policyv1beta2.OperatorPolicyStatus {
	shared := status.DeepCopy() // slices that are decoded grow by more than they need
	for i := range shared.Conditions {
		c := &shared.Conditions[i]
		c.Type, c.Status, c.Reason, c.Message = once(c.Type), once(c.Status), once(c.Reason), once(c.Message)
	}
	for i := range shared.RelatedObjects {
		o := &shared.RelatedObjects[i]
		o.Compliant, o.Reason, o.Cluster = once(o.Compliant), once(o.Reason), once(o.Cluster)
		o.Object.APIVersion, o.Object.Kind = once(o.Object.APIVersion), once(o.Object.Kind)
		o.Object.Metadata.Name, o.Object.Metadata.Namespace = once(o.Object.Metadata.Name),
			once(o.Object.Metadata.Namespace)
	}
	for i := range shared.History {
		shared.History[i].Message = once(shared.History[i].Message)
	}
	return *shared
}

// once returns the text in memory that all equal texts share.
func once[T ~string](text T) T { return unique.Make(text).Value() }
