// Package inspect asks the rules for commands: what is the verdict on an object of a cluster, what does it rest on, and
// which edit would change it. No other package below cmd judges.
package inspect

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// Cluster is what objects are judged by.
type Cluster struct {
	*snapshot.Snapshot
	// Mode is the gate's action on a wrong installPlanApproval.
	Mode rules.ApprovalMode
	// Again judges plans that were approved before. Default: they are reported.
	Again bool
	// Installed judges installed operators. Default: they are context.
	Installed bool
	// Now is the time for approval windows. Required.
	Now time.Time
	// Package returns a package of a catalog, for ClusterExtensions; nil if it is not known. Default: none is known.
	Package func(pkg string, source olm.Catalog) *catalog.Package
}

// Answer is the verdict on an object, with what explains it.
type Answer struct {
	verdict.Verdict
	// Operators are those of a plan, with their dispositions.
	Operators []Operator
	// Notes are what the verdict rests on, Suffixes those of them about versions whose suffix decides.
	Notes, Suffixes []string
	// Plan is the plan that the verdict is about; nil if it is about another object.
	Plan *olm.InstallPlan
	// AlreadyApproved is set for a plan that was approved before and is not judged.
	AlreadyApproved bool
	// Ungoverned is set if no OperatorPolicy governs an operator.
	Ungoverned bool
}

// ReasonsOf returns the reasons that are about a ClusterServiceVersion of a plan.
func (a *Answer) ReasonsOf(csv string) (reasons []verdict.Reason) {
	for _, r := range a.Reasons {
		if slices.ContainsFunc(a.CSVs, func(c verdict.CSV) bool { return c.CSV == csv && slices.Contains(c.Because, r.Message) }) {
			reasons = append(reasons, r)
		}
	}
	return reasons
}

// Judge judges an object as if it were written now, or a plan as if it were approved now. It returns nil for one that
// is not judged.
func (c *Cluster) Judge(o *manifests.Object) *Answer {
	a, schema := c.judge(o)
	if a != nil && len(o.Refused) > 0 {
		a.Verdict = a.Refused(schema, o.Refused)
	}
	return a
}

// judge also returns the rule by which a refusal by the schema of the kind is reported.
func (c *Cluster) judge(o *manifests.Object) (a *Answer, schema verdict.RuleID) {
	ns := c.Namespace(o.Namespace)
	switch value := o.Value.(type) {
	case *policyv1beta2.OperatorPolicy:
		policy := rules.NewOperatorPolicy(value)
		a = &Answer{Notes: c.policyNotes(policy),
			Verdict: rules.JudgeOperatorPolicy(rules.OperatorPolicyInput{
				Policy: policy, Strict: o.Strict, Namespace: c.Namespace, Now: c.Now, Review: true})}
		// The mutating webhook comes first on a cluster; what it fills in changes no verdict.
		a.Changes = append(rules.NormalizeOperatorPolicy(value, nil), a.Changes...)
		return a, rules.RuleOperatorPolicyField
	case *constraintv1.Constraint:
		return &Answer{Verdict: rules.JudgeConstraint(rules.ConstraintInput{
			Constraint: value, Strict: o.Strict, Namespaces: c.All(), Constraints: c.Constraints(), Now: c.Now,
			Review: true})}, rules.RuleConstraintField
	case *policyv1.Policy:
		return &Answer{Verdict: dependency.JudgePolicy(dependency.PolicyInput{Policy: value, Strict: o.Strict,
			Graph: c.Graph()})}, dependency.RulePolicyField
	case *policyv1beta1.PolicySet:
		return &Answer{Verdict: dependency.JudgePolicySet(dependency.PolicySetInput{Set: value, Strict: o.Strict,
				Graph: c.Graph()})},
			dependency.RulePolicyField
	case *olm.Subscription:
		a = &Answer{Notes: append(subscriptionNotes(value, ns), c.judgedBy(ns)...),
			Verdict: rules.JudgeSubscription(rules.SubscriptionInput{
				New: value, Namespace: ns, Mode: c.Mode, Now: c.Now,
				InstalledElsewhere: c.InstalledElsewhere(value.Spec.Package, o.Namespace)}),
			Ungoverned: !slices.ContainsFunc(ns.Policies(),
				func(p *operatorpolicy.Policy) bool { return p.Governs(value.Spec.Package) })}
	case *olm.InstallPlan:
		if !c.Again && approvedBefore(value) {
			return &Answer{AlreadyApproved: true,
				Notes: []string{"approved before, its phase is " + value.Status.Phase + ": not judged again; " +
					"--as-if=approved-now judges it"}, Verdict: verdict.Verdict{Object: "installplan " + o.Key(),
					Warnings: rules.RefusedSteps(value, ns, c.Now)}}, ""
		}
		a = c.JudgePlan(value)
	case *olm.CatalogSource: // who will write it is not known, nor whether it is stored already
		a = &Answer{Verdict: rules.JudgeCatalogSource(rules.CatalogSourceInput{New: value, Namespace: ns,
			UserUnknown: true})}
	case *olm.OperatorGroup:
		a = &Answer{Verdict: rules.JudgeOperatorGroup(rules.OperatorGroupInput{New: value, Namespace: ns,
			UserUnknown: true, Stored: true})}
	case *olm.ClusterExtension:
		in := c.Namespace(value.Spec.Namespace)
		a = &Answer{Notes: c.judgedBy(in), Verdict: rules.JudgeClusterExtension(rules.ClusterExtensionInput{New: value,
			Namespace: in, Constraints: c.Constraints(), Package: c.Package, Now: c.Now})}
	case *olm.ClusterCatalog:
		a = &Answer{Verdict: rules.JudgeClusterCatalog(rules.ClusterCatalogInput{New: value,
			Constraints: c.Constraints(),
			UserUnknown: true})}
	default:
		if o.Kind != olm.KindClusterServiceVersion || !c.Installed {
			return nil, ""
		}
		a = c.JudgeInstalled(types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	}
	return a, ""
}

// JudgePlan judges a plan as if it were approved now.
func (c *Cluster) JudgePlan(plan *olm.InstallPlan) *Answer {
	ns := c.Namespace(plan.Metadata.Namespace)
	a := c.operators(ns, rules.JudgePlan(rules.PlanInput{Plan: plan, Namespace: ns, Now: c.Now}), plan.Spec.CSVNames)
	a.Plan = plan
	return a
}

// JudgeInstalled judges an installed operator, however it was approved; nil if nothing is installed by the name.
func (c *Cluster) JudgeInstalled(key types.NamespacedName) *Answer {
	ns := c.Namespace(key.Namespace)
	if judged, here := bundle.JudgeInstalled(ns, key.Name, c.Now); here {
		return c.operators(ns, judged, nil)
	}
	return nil
}

// Approver returns who approves a plan that may be approved: "Opgate", or "user" and why, in the words of its event.
// The option --ungoverned is that of the loop, and not known.
func (c *Cluster) Approver(plan *olm.InstallPlan) (approver string, notes []string) {
	namespace, approver, notes := plan.Metadata.Namespace, "Opgate", []string{}
	for _, blocker := range rules.JudgeApproval(rules.ApprovalInput{Plan: plan,
		Namespace: c.Namespace(namespace), Now: c.Now,
		Ungoverned: rules.UngovernedIn(c.NamespaceAnnotations(namespace), rules.ApproveUngoverned)}).Blockers {
		approver, notes = "user", append(notes, blocker)
	}
	return approver, notes
}

// approvedBefore reports whether OLM runs a plan, or has run it. Without such a phase spec.approved only asks for that.
func approvedBefore(p *olm.InstallPlan) bool {
	return p.Running() || p.Spec.Approved && p.Finished()
}
