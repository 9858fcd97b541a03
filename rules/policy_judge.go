package rules

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// PolicyInput is all that judging an OperatorPolicy needs.
type PolicyInput struct {
	Policy *policyv1beta2.OperatorPolicy
	// Strict are what DecodePolicy found: unknown and repeated fields.
	Strict []error
	// Old is the stored policy on update, nil on create.
	Old *policyv1beta2.OperatorPolicy
	// Namespace gives what is known of a namespace, for the preview; it may give nil.
	Namespace func(name string) *Namespace
}

// PolicyObject names an OperatorPolicy as verdicts do.
func PolicyObject(op *policyv1beta2.OperatorPolicy) string {
	meta := olm.ObjectMeta{Namespace: op.Namespace, Name: op.Name, GenerateName: op.GenerateName}
	return "operatorpolicy " + meta.Key()
}

// DecodePolicy reads an OperatorPolicy as the API server does, and lists the fields that do not exist or
// stand there twice, with their paths. Metadata and status are the API server's to check: a newer one may
// write fields there that this program does not know.
func DecodePolicy(raw []byte) (op *policyv1beta2.OperatorPolicy, strict []error, err error) {
	op = &policyv1beta2.OperatorPolicy{}
	strict, err = kjson.UnmarshalStrict(raw, op)
	return op, SpecFaults(strict), err
}

// SpecFaults leaves out, of what a strict decode has found, what is in metadata and status.
func SpecFaults(strict []error) []error {
	return slices.DeleteFunc(strict, func(problem error) bool {
		return strings.Contains(problem.Error(), ` "metadata.`) || strings.Contains(problem.Error(), ` "status.`)
	})
}

// JudgePolicy decides on creating or updating an OperatorPolicy. What the designs rule out is denied, with
// the path of the field; what the policy will do to what is installed and pending is previewed in warnings.
// A stored policy whose spec does not change passes, so that its labels and finalizers can be edited
// whatever the rules of its day were.
func JudgePolicy(in PolicyInput) Verdict {
	op := in.Policy
	v := Verdict{Object: PolicyObject(op)}
	if in.Old != nil && len(in.Strict) == 0 && reflect.DeepEqual(in.Old.Spec, op.Spec) && reflect.DeepEqual(in.Old.Annotations, op.Annotations) {
		return v
	}
	for _, problem := range in.Strict {
		v.refuse(Reason{Rule: RulePolicyUnknownField, Decision: Deny, Message: sentence(problem.Error(), RulePolicyUnknownField, fixOf(problem))})
	}
	for _, err := range ValidatePolicy(op) {
		id := RulePolicyField
		if err.Type == field.ErrorTypeForbidden {
			id = RulePolicyContradiction
		}
		v.refuse(Reason{Rule: id, Decision: Deny, Field: err.Field, Message: sentence(err.Error(), id, "")})
	}
	if v.Decision == Allow {
		previewPolicy(&in, NewPolicy(op), &v)
	}
	return v.sorted()
}

// fixOf says what to do about what a strict decode has found.
func fixOf(problem error) string {
	if strings.HasPrefix(problem.Error(), "duplicate field") {
		return "keep one of the two"
	}
	return "correct its name or remove it"
}

// previewPolicy warns of what the policy will and will not do.
func previewPolicy(in *PolicyInput, p *Policy, v *Verdict) {
	preview := func(id RuleID, what, more string) { v.warn(Reason{Rule: id, Message: sentence(what, id, more)}) }
	for _, name := range p.versions {
		if _, err := semver.ParseTolerant(name); err == nil {
			preview(RulePolicyIneffective, "spec.versions has "+text.Quote(name)+", which looks like a version and not like the name of a ClusterServiceVersion",
				`names are matched exactly, for example "etcdoperator.v0.9.4"; for versions use spec.versionRange`)
		}
	}
	if p.Catalog.Name != "" && p.Catalog.Namespace == "" {
		preview(RulePolicyIneffective, "spec.subscription.source "+text.Quote(p.Catalog.Name)+" without spec.subscription.sourceNamespace matches a catalog of that name in any namespace",
			"it may be one that a tenant has made; set spec.subscription.sourceNamespace too")
	}
	if p.Package == "" || p.TargetNamespace == "" {
		preview(RulePolicyIneffective, "the policy governs nothing until its package and namespace are found out on the cluster",
			"write spec.subscription.name and spec.subscription.namespace as plain text to have it in force at once")
		return
	}
	if p.faults != "" {
		preview(RulePolicyIneffective, "package "+p.Package+" in namespace "+p.TargetNamespace+" is held", p.faults)
		return
	}
	// What an informing policy would do is worth knowing too: it is what enforcing it will do.
	p.Enforced = true
	ns := in.Namespace(p.TargetNamespace).withPolicy(p)
	for _, other := range ns.governing(p.Package) {
		if other.key() != p.key() {
			preview(RulePolicyOverlap, other.Source()+" also governs package "+p.Package+" in namespace "+p.TargetNamespace, "a write passes only if both let it pass")
		}
	}
	for _, installed := range ns.installed {
		if what := p.uncovered(installed); what != "" {
			preview(RulePolicyUncovered, what, p.acceptance())
		}
	}
	for _, plan := range ns.plans {
		if plan.Status.Phase == olm.PhaseRequiresApproval && !plan.Spec.Approved {
			previewPlan(plan, p, ns, preview)
		}
	}
}

// uncovered says what is wrong with an installed ClusterServiceVersion under a policy, or "".
func (p *Policy) uncovered(installed Installed) string {
	if installed.Package != p.Package {
		return ""
	}
	if p.MustNotHave {
		if match, sure := p.Forbids(installed.CSV, installed.Version, olm.Catalog{}); match || !sure && (p.Catalog != olm.Catalog{}) {
			return installed.CSV + " is installed in namespace " + p.TargetNamespace + " and forbidden by this policy"
		}
		return ""
	}
	if ok, _ := p.Covers(installed.CSV, installed.Version); ok {
		return ""
	}
	return installed.CSV + " is installed in namespace " + p.TargetNamespace + " and not covered by this policy"
}

// acceptance says what a policy lets through.
func (p *Policy) acceptance() string {
	switch {
	case p.MustNotHave:
		return "the policy is mustnothave for " + p.scope()
	case len(p.versions) > 0:
		return p.acceptedVersions()
	case p.versionRange != nil:
		return "allowed is versionRange " + text.Quote(p.versionRange.String())
	}
	return ""
}

// previewPlan says what becomes of one plan that waits for approval, if the policy has a say in it.
func previewPlan(plan *olm.InstallPlan, p *Policy, ns *Namespace, preview func(id RuleID, what, more string)) {
	verdict := JudgePlan(PlanInput{Plan: plan, Namespace: ns})
	var names []string
	concerned := false
	for _, c := range verdict.CSVs {
		names = append(names, text.Name(c.CSV))
		concerned = concerned || c.Package == p.Package
	}
	ours := slices.IndexFunc(verdict.Reasons, func(r Reason) bool { return r.guard == p.guard() })
	what := fmt.Sprintf("pending %s (%s)", verdict.Object, strings.Join(names, ", "))
	switch {
	case ours >= 0:
		preview(RulePolicyPending, what+" may not be approved under this policy", verdict.Reasons[ours].Message)
	case !concerned:
	case verdict.Decision == Allow:
		preview(RulePolicyPending, what+" may be approved under this policy", "")
	default:
		preview(RulePolicyPending, what+" may be approved under this policy, but not under all", verdict.Reasons[0].Message)
	}
}
