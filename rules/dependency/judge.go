package dependency

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	RulePolicyField               verdict.RuleID = "policy/field"
	RulePolicyDependencyConflict  verdict.RuleID = "policy/dependency-conflict"
	RulePolicyDependencyDuplicate verdict.RuleID = "policy/dependency-duplicate"
	RulePolicyDependencyCycle     verdict.RuleID = "policy/dependency-cycle"
	RulePolicyDependencyNamespace verdict.RuleID = "policy/dependency-namespace"
	RulePolicyEscalation          verdict.RuleID = "policy/escalation"
	RulePolicyDependencyAccess    verdict.RuleID = "policy/dependency-access"
	RulePolicyTemplate            verdict.RuleID = "policy/template"
	RulePolicySetDependencyCycle  verdict.RuleID = "policyset/dependency-cycle"
)

// policyRules are the rules on Policies and PolicySets. Package admission applies those on the rights of an author.
var policyRules = []verdict.Rule{
	{ID: RulePolicyField, Outcomes: verdict.DeniesOrWarns,
		Summary: "a Policy has a name or a field that is not valid, or a Policy or PolicySet one that Opgate does not know"},
	{ID: RulePolicyDependencyConflict, Outcomes: verdict.Denies,
		Summary: "a Policy waits for one object in two states at once"},
	{ID: RulePolicyDependencyDuplicate, Outcomes: verdict.Denies,
		Summary: "a Policy names one object that it depends on in two API versions"},
	{ID: RulePolicyDependencyCycle, Outcomes: verdict.Denies,
		Summary: "a Policy would wait for itself, through others that wait for it"},
	{ID: RulePolicyDependencyNamespace, Outcomes: verdict.Warns,
		Summary: "a dependency of a Policy names a namespace, which is ignored for its kind"},
	{ID: RulePolicyEscalation, Outcomes: verdict.Denies,
		Summary: "a Policy has a template of a kind that its author may not create"},
	{ID: RulePolicyDependencyAccess, Outcomes: verdict.Denies,
		Summary: "a Policy waits for an object in another namespace, or in none, that its author may not get"},
	{ID: RulePolicyTemplate, Outcomes: verdict.Warns,
		Summary: "a template of a Policy cannot be applied as it is written"},
	{ID: RulePolicySetDependencyCycle, Outcomes: verdict.Denies,
		Summary: "a Policy would wait for itself, through a PolicySet that it is a member of"},
}

// Rules returns the rules on Policies and PolicySets, in reading order. The caller may keep the slice.
func Rules() []verdict.Rule { return slices.Clone(policyRules) }

// PolicyInput is the input of JudgePolicy.
type PolicyInput struct {
	Policy *policyv1.Policy
	// Old is the stored Policy on update, nil on create.
	Old *policyv1.Policy
	// Strict are the errors of strict decoding, which are warned of.
	Strict []error
	// Graph is the graph of the other Policies and PolicySets; nil for none.
	Graph *Graph
	// Grants are the rights that the installation withholds.
	Grants grant.Set
}

// JudgePolicy decides on creating or updating a Policy. It denies what can never be satisfied: waiting for one object
// in two states, or for itself. An update that does not change the spec passes, so that an existing cycle does not
// block edits of labels and finalizers.
func JudgePolicy(in PolicyInput) verdict.Verdict {
	policy := in.Policy
	v := verdict.Verdict{Object: ObjectName("policy", &policy.ObjectMeta)}
	if policy.DeletionTimestamp != nil || in.Old != nil && reflect.DeepEqual(in.Old.Spec, policy.Spec) {
		return v
	}
	WarnUnknown(&v, in.Strict)
	read := Read(policy)
	v.AddFaults(RulePolicyField, read.Faults)
	for i := range read.Clashes {
		clash := &read.Clashes[i]
		path := clash.Paths[len(clash.Paths)-1]
		v.Add(clash.Rule, verdict.Finding{Decision: verdict.Deny, Field: path, Accepted: "keep one",
			What: path + ": the Policy waits for " + clash.String()})
	}
	if cycle := in.Graph.WithPolicy(read).PolicyCycle(read.Namespace, read.Name); cycle != nil {
		path := "spec"
		if d := leadsTo(read, cycle); d != nil {
			path = d.Path
		}
		v.Add(RulePolicyDependencyCycle, verdict.Finding{Decision: verdict.Deny, Field: path,
			What: path + ": " + cycleText(cycle), Accepted: "remove one of these dependencies"})
	}
	for _, w := range read.Warnings {
		v.Add(RulePolicyDependencyNamespace, verdict.Finding{Field: w.Path, What: w.Path + ": " + w.Text,
			Accepted: "leave the namespace out"})
	}
	for i := range read.Templates {
		t := &read.Templates[i]
		if fault := cmp.Or(t.Fault, in.Grants.MissingKind(t.Ref.Group, t.Ref.Kind)); fault != "" &&
			v.Decision == verdict.Allow {
			path := "spec.policy-templates[" + strconv.Itoa(i) + "]"
			v.Add(RulePolicyTemplate, verdict.Finding{Field: path, What: path + ": " + text.Escape(fault),
				Accepted: "the template is not applied, and the Policy is NonCompliant, until that is fixed"})
		}
	}
	return v.Sorted()
}

// WarnUnknown warns of the unknown fields in the spec of a Policy or PolicySet, of which strict are the errors of strict
// decoding. They are kept, since these definitions grow with those of Open Cluster Management.
func WarnUnknown(v *verdict.Verdict, strict []error) {
	for _, err := range strict {
		if strings.Contains(err.Error(), ` "spec.`) {
			v.Add(RulePolicyField, verdict.Finding{What: text.Escape(err.Error()),
				Accepted: "it is kept, and Opgate does not read it"})
		}
	}
}

// leadsTo returns the dependency that is the first step of a cycle.
func leadsTo(p *Policy, cycle []Ref) *Dependency {
	for i := range p.Templates {
		t := &p.Templates[i]
		if cycle[0] != t.Ref && (cycle[0] != p.Ref() || t.IgnorePending) {
			continue
		}
		for j := range t.Dependencies {
			if t.Dependencies[j].Ref == cycle[1] {
				return t.Dependencies[j]
			}
		}
	}
	return nil
}

func cycleText(cycle []Ref) string {
	return cycle[0].String() + " would wait for itself: " + ChainText(cycle)
}

// ObjectName returns the name of an object as used in verdicts.
func ObjectName(kind string, meta *metav1.ObjectMeta) string {
	return kind + " " + (&olm.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name,
		GenerateName: meta.GenerateName}).Key()
}

// PolicySetInput is the input of JudgePolicySet.
type PolicySetInput struct {
	Set *policyv1beta1.PolicySet
	// Old is the stored PolicySet on update, nil on create.
	Old *policyv1beta1.PolicySet
	// Strict is that of PolicyInput.
	Strict []error
	// Graph is that of PolicyInput.
	Graph *Graph
}

// JudgePolicySet decides on creating or updating a PolicySet: no member may wait for the set, directly or indirectly,
// since the set waits for its members. An update that does not change the spec passes.
func JudgePolicySet(in PolicySetInput) verdict.Verdict {
	set := in.Set
	v := verdict.Verdict{Object: ObjectName("policyset", &set.ObjectMeta)}
	if set.DeletionTimestamp != nil || in.Old != nil && reflect.DeepEqual(in.Old.Spec, set.Spec) {
		return v
	}
	WarnUnknown(&v, in.Strict)
	read := ReadSet(set)
	if cycle := in.Graph.WithSet(read).Cycle(read.Ref()); cycle != nil {
		member := slices.Index(set.Spec.Policies, policyv1beta1.NonEmptyString(cycle[1].Name))
		path := "spec.policies[" + strconv.Itoa(member) + "]"
		v.Add(RulePolicySetDependencyCycle, verdict.Finding{Decision: verdict.Deny, Field: path,
			What: path + ": " + cycleText(cycle), Accepted: "remove the member, or what it waits for"})
	}
	return v.Sorted()
}
