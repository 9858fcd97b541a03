package rules

import (
	"slices"
	"time"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/evidence"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on ClusterExtensions of OLM v1.
const (
	RuleClusterExtensionPackage    verdict.RuleID = "clusterextension/package"
	RuleClusterExtensionVersion    verdict.RuleID = "clusterextension/version"
	RuleClusterExtensionContents   verdict.RuleID = "clusterextension/contents"
	RuleClusterExtensionConstraint verdict.RuleID = "clusterextension/constraint"
	RuleClusterExtensionOverride   verdict.RuleID = "clusterextension/override"
)

var (
	clusterExtensionPackage = verdict.Rule{ID: RuleClusterExtensionPackage, Outcomes: verdict.Holds, Override: true,
		Summary: "spec.source of a ClusterExtension does not say which package is installed, where something may refuse operators"}
	clusterExtensionVersion = verdict.Rule{ID: RuleClusterExtensionVersion, Outcomes: verdict.DeniesOrHolds,
		Override: true,
		Summary:  "a ClusterExtension of a governed package does not pin a version that the policy allows"}
	clusterExtensionContents = verdict.Rule{ID: RuleClusterExtensionContents, Outcomes: verdict.Holds, Override: true,
		Summary: "the policy of the package holds what bundles contain or where they come from, of which a ClusterExtension shows nothing"}
	clusterExtensionConstraint = verdict.Rule{ID: RuleClusterExtensionConstraint, Outcomes: verdict.AnyOutcome,
		Override: true,
		Summary:  "the package of a ClusterExtension does not satisfy a Constraint, or the Constraint depends on more than is known of it"}
	clusterExtensionOverride = verdict.Rule{ID: RuleClusterExtensionOverride, Outcomes: verdict.Warns, SetsAside: true,
		Summary: "a refused ClusterExtension is written by a user with the RBAC verb override, for the reason given"}
)

// ClusterExtensionInput is the input of JudgeClusterExtension.
type ClusterExtensionInput struct {
	// New is the object as it would be stored, Old the stored one, nil on create.
	New, Old *olm.ClusterExtension
	// Namespace is that of spec.namespace. Its Constraints are not read: it may be one that is excluded from judging,
	// and the user who writes a ClusterExtension chooses it.
	Namespace *state.Namespace
	// Constraints are those of the cluster.
	Constraints *constraint.Set
	// Package returns a package of a catalog of OLM v0, which provides the versions of listed names; nil if it is not
	// known. Default: none is known.
	Package func(pkg string, source olm.Catalog) *catalog.Package
	// Now is that of PlanInput.
	Now time.Time
	// Interrupt is that of PlanInput.
	Interrupt <-chan struct{}
}

// extensionChecks run all, in this order, for every policy that governs the package in spec.namespace.
var extensionChecks = []struct {
	rule  verdict.RuleID
	judge func(*ClusterExtensionInput, *state.OperatorPolicy) verdict.Finding
}{
	// A policy that cannot be read must not let anything through (threat G5).
	{bundle.RulePolicyUnreadable, func(_ *ClusterExtensionInput, p *state.OperatorPolicy) verdict.Finding {
		return bundle.Unreadable(p, "this ClusterExtension")
	}},
	// OLM v1 resolves and upgrades by itself, and no plan is judged: the version has to be one that is allowed (O61).
	{RuleClusterExtensionVersion, foreignExtensionVersion},
	// What is judged of the contents of a bundle is judged of none that OLM v1 brings.
	{RuleClusterExtensionContents, unseenContents},
	// What depends on something else is not installed before it (R-DP-4).
	{bundle.RuleDependencyPending, func(in *ClusterExtensionInput, p *state.OperatorPolicy) verdict.Finding {
		return in.Namespace.Suspended(p.Pending, p.Waits, p.Name, in.what())
	}},
	// An upgrade of an installed operator is held if upgrades are not approved (threat O10).
	{bundle.RuleUpgrade, heldExtensionUpgrade},
	// What is installed outside of a maintenance window disturbs when no one expects it.
	{bundle.RuleApprovalWindow, func(in *ClusterExtensionInput, p *state.OperatorPolicy) verdict.Finding {
		return bundle.OutsideWindow(in.Now, in.what(), p)
	}},
}

// JudgeClusterExtension decides on creating a ClusterExtension of OLM v1 or changing its source. OLM v1 installs it as
// cluster admin and asks for no approval, so that the ClusterExtension is all that can be judged: one of a package that
// a policy governs in spec.namespace has to pin a version that the policy allows. An update that leaves spec.source and
// spec.namespace as they are passes.
func JudgeClusterExtension(in ClusterExtensionInput) verdict.Verdict {
	v := verdict.Verdict{Object: "clusterextension " + in.New.Metadata.Key()}
	spec := &in.New.Spec
	if in.Old != nil && in.Old.Spec.Source.Digest == spec.Source.Digest && in.Old.Spec.Namespace == spec.Namespace {
		return v
	}
	pkg := spec.Source.Package()
	if pkg == "" {
		state.RecordForNamespace(&v, in.Namespace, RuleClusterExtensionPackage, verdict.Finding{
			Decision: verdict.Hold, Field: "spec.source",
			What:     "a source of type " + text.Quote(spec.Source.Type) + " that names no package is held",
			Accepted: "write sourceType " + olm.ExtensionFromCatalog + " with catalog.packageName"})
	}
	for _, p := range in.Namespace.Governing(pkg) {
		for _, check := range extensionChecks {
			p.Record(&v, check.rule, check.judge(&in, p))
		}
	}
	judgeExtensionConstraints(&in, &v)
	return v.Sorted()
}

// what names what is installed, in messages.
func (in *ClusterExtensionInput) what() string {
	pkg := "package " + text.Name(in.New.Spec.Source.Package())
	if version := in.New.Spec.Source.Catalog.Version; version != "" {
		return pkg + " in version " + text.Quote(version)
	}
	return pkg
}

// orOverrideExtension is what allows a ClusterExtension besides a policy.
const orOverrideExtension = ", or give a reason in annotation " + evidence.OverrideReasonAnnotation +
	" as a user with the verb override"

// unseenContents holds what a policy holds by more than its name and version.
func unseenContents(in *ClusterExtensionInput, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	var fields []string
	for field, holds := range map[string]bool{"spec.catalog": p.CatalogImages.Holds(),
		"spec.consent":    p.Consent.Holds(),
		"spec.deprecated": p.HoldDeprecated} {
		if holds {
			fields = append(fields, field)
		}
	}
	if len(fields) == 0 {
		return verdict.Finding{}
	}
	slices.Sort(fields)
	return verdict.Finding{Decision: verdict.Hold, Field: "spec.source", What: in.what() + " is held",
		Accepted: "what " + text.Join(fields, verdict.MaxListed) +
			" of the policy holds is not known of a ClusterExtension; install it by a Subscription" +
			orOverrideExtension}
}

// heldExtensionUpgrade holds another version than the stored one, or than the installed one of OLM v0, if upgrades are
// not approved. Of a ClusterExtension that was deleted nothing is known.
func heldExtensionUpgrade(in *ClusterExtensionInput, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.ApproveUpgrades || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	source, from := &in.New.Spec.Source, ""
	if in.Old != nil {
		if before := in.Old.Spec.Source.Catalog.Version; !olm.SameVersion(before, source.ExactVersion()) {
			from = "version " + text.Quote(before)
		}
	}
	for _, c := range in.Namespace.Installed() {
		if c.Package == source.Package() && !olm.SameVersion(c.Version, source.ExactVersion()) {
			from = text.Name(c.CSV)
		}
	}
	if from == "" {
		return verdict.Finding{} // a first install needs no upgrade approval (R-OP-10)
	}
	return verdict.Finding{Decision: verdict.Hold, Field: "spec.source.catalog.version",
		What:     "the upgrade of " + from + " to " + in.what() + " is held",
		Accepted: "waits for spec.upgradeApproval: Automatic" + orOverrideExtension}
}

// judgeExtensionConstraints judges the package, and the version if it is pinned, by the Constraints on bundles. Nothing
// else is known of the bundle that OLM v1 will install: a Constraint that depends on more only warns.
func judgeExtensionConstraints(in *ClusterExtensionInput, v *verdict.Verdict) {
	set, namespace := in.Constraints, in.Namespace.ForConstraints()
	pkg, version := in.New.Spec.Source.Package(), in.New.Spec.Source.ExactVersion()
	if set.Empty() || pkg == "" {
		return
	}
	for _, d := range set.Applicable(namespace) {
		v.Record(bundle.RuleDependencyPending, state.ConstraintRef(d), true,
			in.Namespace.Suspended(d.Pending, d.Waits, d.Name, in.what()))
	}
	b := &constraint.Bundle{Package: pkg, Version: version, Unknown: constraint.OfBundle &^ constraint.Package}
	if version != "" {
		b.Unknown &^= constraint.Version
	}
	for _, f := range set.Judge(b, namespace, constraint.NewBudget(in.Interrupt)) {
		if f.Outcome != constraint.Undecided {
			state.RecordConstraint(v, RuleClusterExtensionConstraint, in.what(), &f)
			continue
		}
		source := state.ConstraintRef(f.Definition)
		v.Warn(verdict.Reason{Rule: RuleClusterExtensionConstraint, Source: source.String(), From: source,
			Message: verdict.Sentence(in.what()+" is not judged by "+source.String()+", since "+text.Escape(f.Why)+
				" for a ClusterExtension", RuleClusterExtensionConstraint, state.MustSatisfy(&f))})
	}
}

// OverrideAsked returns the override that a write adds.
func (in *ClusterExtensionInput) OverrideAsked() Override {
	var before *olm.ObjectMeta
	if in.Old != nil {
		before = &in.Old.Metadata
	}
	return overrideAsked(RuleClusterExtensionOverride, &in.New.Metadata, before, in.Now)
}
