package rules

import (
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules that preview the effect of an OperatorPolicy.
const (
	RuleOperatorPolicyIneffective    verdict.RuleID = "operatorpolicy/ineffective"
	RuleOperatorPolicyOverlap        verdict.RuleID = "operatorpolicy/overlap"
	RuleOperatorPolicyUncovered      verdict.RuleID = "operatorpolicy/uncovered"
	RuleOperatorPolicyPending        verdict.RuleID = "operatorpolicy/pending"
	RuleOperatorPolicySeveralTargets verdict.RuleID = "operatorpolicy/several-targets"
)

var (
	operatorPolicyIneffective = verdict.Rule{ID: RuleOperatorPolicyIneffective, Outcomes: verdict.Warns,
		Summary: "something in an OperatorPolicy cannot have the effect that its author will expect"}
	operatorPolicyOverlap = verdict.Rule{ID: RuleOperatorPolicyOverlap, Outcomes: verdict.Warns,
		Summary: "another OperatorPolicy governs the same package in the same namespace"}
	operatorPolicyUncovered = verdict.Rule{ID: RuleOperatorPolicyUncovered, Outcomes: verdict.Warns,
		Summary: "an installed ClusterServiceVersion is not one that the OperatorPolicy allows, or a Subscription that it managed is left behind"}
	operatorPolicyPending = verdict.Rule{ID: RuleOperatorPolicyPending, Outcomes: verdict.Warns,
		Summary: "what the OperatorPolicy does to InstallPlans that wait for approval"}
	operatorPolicySeveralTargets = verdict.Rule{ID: RuleOperatorPolicySeveralTargets, Outcomes: verdict.Warns,
		Summary: "the OperatorGroup of an OperatorPolicy names several target namespaces, which OLM advises against"}
)

// previewPolicy warns of what the policy will and will not do.
func previewPolicy(in *OperatorPolicyInput, p *state.OperatorPolicy, v *verdict.Verdict) {
	preview := func(id verdict.RuleID, what, more string) {
		v.Warn(verdict.Reason{Rule: id, Message: verdict.Sentence(what, id, more)})
	}
	previewVersions(p, preview)
	previewRange(p, preview)
	if p.Catalog.Name != "" && p.Catalog.Namespace == "" {
		preview(RuleOperatorPolicyIneffective, "spec.subscription.source "+text.Quote(p.Catalog.Name)+
			" without spec.subscription.sourceNamespace matches a catalog of that name in any namespace",
			"it may be one that a tenant has made; set spec.subscription.sourceNamespace too")
	}
	if targets := operatorpolicy.SeveralTargets(in.Policy); targets != nil {
		preview(RuleOperatorPolicySeveralTargets, "spec.operatorGroup names several target namespaces, "+
			text.Names(targets,
				verdict.MaxListed), oneTarget)
	}
	if spec := &in.Policy.Spec; spec.ComplianceType == policyv1beta2.MayHave && spec.OperatorGroup != nil {
		preview(RuleOperatorPolicyIneffective,
			"spec.operatorGroup has no effect with complianceType mayhave, which installs nothing",
			"remove it, or write complianceType musthave to have the operator installed")
	}
	previewConsent(in.Policy, p, preview)
	previewCatalog(in.Policy, p, preview)
	previewCalendar(p, in.Now, preview)
	previewAge(in, p, preview)
	previewGrants(in, p, preview)
	previewDeletion(in, p, preview)
	if p.Package == "" || p.TargetNamespace == "" {
		preview(RuleOperatorPolicyIneffective,
			"the policy governs nothing until its package and namespace are found out on the cluster",
			"write spec.subscription.name and spec.subscription.namespace as plain text to have it in force at once")
		return
	}
	previewMove(in, p, preview)
	if p.Unreadable() != "" {
		return // a valid policy has template text, which is resolved only now
	}
	enforced := p.Enforced
	p.Enforced = true // preview an informing policy too, as if it were enforced
	ns := in.Namespace(p.TargetNamespace).WithPolicy(p)
	for _, other := range ns.Governing(p.Package) {
		if other.Key() == p.Key() {
			continue
		}
		more := "of the two only an enforced one acts and refuses"
		if enforced && other.Enforced {
			more = "while both are enforced neither installs, upgrades or approves anything, and both still refuse; keep one of them enforced"
		}
		preview(RuleOperatorPolicyOverlap, other.Source()+" also governs package "+p.Package+" in namespace "+
			p.TargetNamespace, more)
	}
	previewSubscription(in, p, ns, v)
	for _, installed := range ns.Installed() {
		if what := uncovered(p, installed, in.Now); what != "" {
			preview(RuleOperatorPolicyUncovered, what, p.Acceptance())
		}
	}
	for _, plan := range ns.Plans() {
		if plan.AwaitsApproval() {
			previewPlan(plan, p, ns, in.Now, preview)
		}
	}
}

// previewMove warns of Subscriptions that stay when a policy is changed to another namespace or package.
func previewMove(in *OperatorPolicyInput, p *state.OperatorPolicy, preview func(id verdict.RuleID, what, more string)) {
	if in.Old == nil || in.Old.Spec.ComplianceType != policyv1beta2.MustHave || !in.Old.Spec.IsEnforced() {
		return
	}
	old := NewOperatorPolicy(in.Old)
	if old.Package == p.Package && old.TargetNamespace == p.TargetNamespace {
		return
	}
	ns := in.Namespace(old.TargetNamespace)
	managed := func(other *state.OperatorPolicy) bool { return other.Enforced && other.Key() != p.Key() }
	if slices.ContainsFunc(ns.Governing(old.Package), managed) {
		return
	}
	for _, s := range ns.Subscribers(old.Package) {
		preview(RuleOperatorPolicyUncovered, "Subscription "+s.Metadata.Key()+
			" stays, with what it installed, and is not covered by this policy any more",
			"delete it and its ClusterServiceVersion, or have a mustnothave policy remove them")
	}
}

// previewVersions warns of entries of spec.versions that match nothing, or match more than they seem to.
func previewVersions(p *state.OperatorPolicy, preview func(id verdict.RuleID, what, more string)) {
	for _, entry := range p.Versions.Entries {
		name, digest := olm.CutDigest(entry)
		if _, err := semver.ParseTolerant(name); err == nil {
			preview(RuleOperatorPolicyIneffective, "spec.versions has "+text.Quote(name)+
				", which looks like a version and not like the name of a ClusterServiceVersion",
				`names are matched exactly, for example "etcdoperator.v0.9.4"; for versions use spec.versionRange`)
		}
		if digest != "" && p.Versions.Lists(name) {
			preview(RuleOperatorPolicyIneffective, "spec.versions has "+text.Quote(name)+" both with "+digest+
				" and without a digest",
				"without a digest it stands for any contents; remove that entry to bind the name to the digest")
		}
	}
}

// previewRange warns of a release in spec.VersionRange, of which ranges know nothing.
func previewRange(p *state.OperatorPolicy, preview func(id verdict.RuleID, what, more string)) {
	if p.VersionRange == nil || !strings.Contains(p.VersionRange.String(), "+") {
		return
	}
	preview(RuleOperatorPolicyIneffective, "spec.versionRange "+text.Quote(p.VersionRange.String())+
		" says more than a version, and what follows + is not compared",
		"every release of that version is in the range; list names in spec.versions, or read release in a Constraint")
}

// uncovered returns how an installed ClusterServiceVersion violates a policy, or "".
func uncovered(p *state.OperatorPolicy, installed state.Installed, now time.Time) string {
	if installed.Package != p.Package {
		return ""
	}
	if p.MustNotHave {
		if match, known := bundle.Forbids(p, installed.CSV, installed.Version, olm.Catalog{}, now); match || !known &&
			(p.Catalog != olm.Catalog{}) && !p.Versions.Binds(installed.CSV) {
			return installed.CSV + " is installed in namespace " + p.TargetNamespace + " and forbidden by this policy"
		}
		return ""
	}
	if ok, _ := bundle.Covers(p, installed.CSV, installed.Version, now); ok {
		return ""
	}
	return installed.CSV + " is installed in namespace " + p.TargetNamespace + " and not covered by this policy"
}

// previewPlan reports the effect on one plan that waits for approval, if the policy applies to it.
func previewPlan(plan *olm.InstallPlan, p *state.OperatorPolicy, ns *state.Namespace, now time.Time,
	preview func(id verdict.RuleID, what, more string)) {
	judged := JudgePlan(PlanInput{Plan: plan, Namespace: ns, Now: now})
	concerned := slices.ContainsFunc(judged.CSVs, func(c verdict.CSV) bool { return c.Package == p.Package })
	ours := slices.IndexFunc(judged.Reasons, func(r verdict.Reason) bool { return r.From == p.Ref() })
	what := pendingText(&judged)
	switch {
	case ours >= 0:
		preview(RuleOperatorPolicyPending, what+" may not be approved under this policy", judged.Reasons[ours].Message)
	case !concerned:
	case judged.Decision == verdict.Allow:
		preview(RuleOperatorPolicyPending, what+" may be approved under this policy", "")
	default:
		preview(RuleOperatorPolicyPending, what+" may be approved under this policy, but not under all",
			judged.Reasons[0].Message)
	}
}
