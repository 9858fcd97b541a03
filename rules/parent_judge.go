package rules

import (
	"reflect"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/dependency"
)

// ParentPolicyInput is all that judging a Policy needs.
type ParentPolicyInput struct {
	Policy *policyv1.Policy
	// Old is the stored Policy on update, nil on create.
	Old *policyv1.Policy
	// Order is what is known of the other Policies and PolicySets; nil for none.
	Order *dependency.Graph
}

// JudgeParentPolicy decides on creating or updating a Policy. What it can never do is denied: to wait for one object in
// two states, or for itself. A Policy whose spec does not change passes, so that a cycle that slipped in does not keep its
// labels and finalizers from being edited.
func JudgeParentPolicy(in ParentPolicyInput) Verdict {
	policy := in.Policy
	v := Verdict{Object: objectName("policy", &policy.ObjectMeta)}
	if policy.DeletionTimestamp != nil || in.Old != nil && reflect.DeepEqual(in.Old.Spec, policy.Spec) {
		return v
	}
	for _, err := range ValidateParentPolicy(policy) {
		v.refuse(Reason{Rule: RuleParentField, Decision: Deny, Field: err.Field, Message: sentence(err.Error(), RuleParentField, "")})
	}
	read := dependency.Read(policy)
	clash := func(id RuleID, list []dependency.Clash, in string) {
		for i := range list {
			path := list[i].Paths[len(list[i].Paths)-1]
			v.refuse(Reason{Rule: id, Decision: Deny, Field: path, Message: sentence(path+": the Policy waits for "+list[i].Text(in), id, "leave one")})
		}
	}
	clash(RuleParentConflict, read.Conflicts, "in states")
	clash(RuleParentDuplicate, read.Duplicates, "in API versions")
	if cycle := in.Order.WithPolicy(read).PolicyCycle(read.Namespace, read.Name); cycle != nil {
		path := "spec"
		if d := leadsTo(read, cycle); d != nil {
			path = d.Path
		}
		v.refuse(Reason{Rule: RuleParentCycle, Decision: Deny, Field: path,
			Message: sentence(path+": "+waitsForItself(cycle), RuleParentCycle, "remove one of these dependencies")})
	}
	for _, w := range read.Warnings {
		v.warn(Reason{Rule: RuleParentNamespace, Field: w.Path, Message: sentence(w.Path+": "+w.Text, RuleParentNamespace, "leave the namespace out")})
	}
	for i := range read.Templates {
		if t := &read.Templates[i]; t.Fault != "" && v.Decision == Allow {
			path := "spec.policy-templates[" + strconv.Itoa(i) + "]"
			v.warn(Reason{Rule: RuleParentTemplate, Field: path,
				Message: sentence(path+": "+text.Escape(t.Fault), RuleParentTemplate, "the template is not applied, and the Policy is NonCompliant, until that is mended")})
		}
	}
	return v.sorted()
}

// leadsTo gives the dependency that is the first step of a cycle.
func leadsTo(p *dependency.Policy, cycle []dependency.Ref) *dependency.Dependency {
	for i := range p.Templates {
		t := &p.Templates[i]
		if cycle[0] != t.Ref && (cycle[0] != p.Ref() || t.IgnorePending) {
			continue
		}
		for j := range t.Dependencies {
			if t.Dependencies[j].Ref == cycle[1] {
				return &t.Dependencies[j]
			}
		}
	}
	return nil
}

func waitsForItself(cycle []dependency.Ref) string {
	return cycle[0].String() + " would wait for itself: " + dependency.ChainText(cycle)
}

func objectName(kind string, meta *metav1.ObjectMeta) string {
	return kind + " " + (&olm.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, GenerateName: meta.GenerateName}).Key()
}

// PolicySetInput is all that judging a PolicySet needs.
type PolicySetInput struct {
	Set *policyv1beta1.PolicySet
	// Old is the stored PolicySet on update, nil on create.
	Old *policyv1beta1.PolicySet
	// Order is that of ParentPolicyInput.
	Order *dependency.Graph
}

// JudgePolicySet decides on creating or updating a PolicySet: no member may wait for the set, at however many removes,
// for the set waits for its members. A PolicySet whose spec does not change passes.
func JudgePolicySet(in PolicySetInput) Verdict {
	set := in.Set
	v := Verdict{Object: objectName("policyset", &set.ObjectMeta)}
	if set.DeletionTimestamp != nil || in.Old != nil && reflect.DeepEqual(in.Old.Spec, set.Spec) {
		return v
	}
	read := dependency.ReadSet(set)
	if cycle := in.Order.WithSet(read).Cycle(read.Ref()); cycle != nil {
		member := slices.Index(set.Spec.Policies, policyv1beta1.NonEmptyString(cycle[1].Name))
		path := "spec.policies[" + strconv.Itoa(member) + "]"
		v.refuse(Reason{Rule: RulePolicySetCycle, Decision: Deny, Field: path,
			Message: sentence(path+": "+waitsForItself(cycle), RulePolicySetCycle, "remove the member, or what it waits for")})
	}
	return v.sorted()
}
