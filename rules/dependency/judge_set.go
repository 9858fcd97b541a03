package dependency

import (
	"reflect"
	"slices"
	"strconv"

	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	"github.com/opgate/opgate/rules/verdict"
)

// RulePolicySetDependencyCycle is on the members of a PolicySet.
const RulePolicySetDependencyCycle verdict.RuleID = "policyset/dependency-cycle"

var policySetDependencyCycle = verdict.Rule{ID: RulePolicySetDependencyCycle, Outcomes: verdict.Denies,
	Summary: "a Policy would wait for itself, through a PolicySet that it is a member of"}

// PolicySetInput is the input of JudgePolicySet.
type PolicySetInput struct {
	Set *policyv1beta1.PolicySet
	// Old is the stored PolicySet on update, nil on create.
	Old *policyv1beta1.PolicySet
	// Graph is that of PolicyInput.
	Graph *Graph
}

// JudgePolicySet decides on creating or updating a PolicySet: no member may wait for the set, directly or indirectly,
// since the set waits for its members. An update that does not change the spec passes.
func JudgePolicySet(in PolicySetInput) verdict.Verdict {
	set := in.Set
	v := verdict.Verdict{Object: objectName("policyset", &set.ObjectMeta)}
	if set.DeletionTimestamp != nil || in.Old != nil && reflect.DeepEqual(in.Old.Spec, set.Spec) {
		return v
	}
	read := ReadSet(set)
	if cycle := in.Graph.WithSet(read).Cycle(read.Ref()); cycle != nil {
		member := slices.Index(set.Spec.Policies, policyv1beta1.NonEmptyString(cycle[1].Name))
		path := "spec.policies[" + strconv.Itoa(member) + "]"
		v.Refuse(verdict.Reason{Rule: RulePolicySetDependencyCycle, Decision: verdict.Deny, Field: path,
			Message: verdict.Sentence(path+": "+cycleText(cycle), RulePolicySetDependencyCycle,
				"remove the member, or what it waits for")})
	}
	return v.Sorted()
}
