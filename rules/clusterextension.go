package rules

import (
	"cmp"
	"slices"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on ClusterExtensions that code refers to.
const (
	RuleClusterExtensionPackage    verdict.RuleID = "clusterextension/package"
	RuleClusterExtensionConstraint verdict.RuleID = "clusterextension/constraint"
	RuleClusterExtensionOverride   verdict.RuleID = "clusterextension/override"
)

// clusterExtensionRules are the rules on ClusterExtensions of OLM v1, in reading order.
var clusterExtensionRules = []rule[*ClusterExtensionInput]{
	// Without its package no policy of a ClusterExtension is found.
	{Rule: verdict.Rule{ID: RuleClusterExtensionPackage, Outcomes: verdict.Holds, Override: true,
		Summary: "spec.source of a ClusterExtension does not say which package is installed, where something may refuse operators"}},
	// OLM v1 resolves and upgrades by itself, and no plan is judged: the version has to be one that is allowed.
	{Rule: verdict.Rule{ID: "clusterextension/version", Outcomes: verdict.DeniesOrHolds, Override: true,
		Summary: "a ClusterExtension of a governed package does not pin a version that the policy allows"},
		byPolicy: bundle.ByPolicy[*ClusterExtensionInput]{Forbids: foreignExtensionVersion, Allows: foreignExtensionVersion}},
	// What is judged of the contents of a bundle is judged of none that OLM v1 brings.
	{Rule: verdict.Rule{ID: "clusterextension/contents", Outcomes: verdict.Holds, Override: true,
		Summary: "the policy of the package holds what bundles contain or where they come from, of which a ClusterExtension shows nothing"},
		byPolicy: bundle.ByPolicy[*ClusterExtensionInput]{Allows: unseenContents}},
	{Rule: verdict.Rule{ID: RuleClusterExtensionConstraint, Outcomes: verdict.AnyOutcome, Override: true,
		Summary: "the package of a ClusterExtension does not satisfy a Constraint, or the Constraint depends on more than is known of it"}},
	{Rule: verdict.Rule{ID: RuleClusterExtensionOverride, Outcomes: verdict.Warns, SetsAside: true,
		Summary: "a refused ClusterExtension is written by a user with the RBAC verb override, for the reason given"}},
}

// ClusterExtensionInput is the input of JudgeClusterExtension.
type ClusterExtensionInput Write[olm.ClusterExtension]

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
		state.RecordForNamespace(&v, in.Namespace, RuleClusterExtensionPackage, verdict.OnHold("a source of type "+
			text.Quote(spec.Source.Type)+" that names no package", "write sourceType "+olm.ExtensionFromCatalog+
			" with catalog.packageName").At("spec.source"))
	}
	policies := in.Namespace.Governing(pkg)
	judgeBy(clusterExtensionRules, &in, "this ClusterExtension", policies, &v)
	for _, p := range policies { // by rules of package bundle
		p.Record(&v, bundle.RuleDependencyPending, state.Suspended(p.Pending, p.Waits, in.what()))
		if p.Unreadable() == "" && !p.MustNotHave {
			p.Record(&v, bundle.RuleUpgrade, heldExtensionUpgrade(&in, p))
			p.Record(&v, bundle.RuleApprovalWindow, bundle.OutsideWindow(in.Now, in.what(), p))
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

// unseenContents holds what a policy holds by more than its name and version.
func unseenContents(in *ClusterExtensionInput, p *operatorpolicy.Policy) verdict.Finding {
	var fields []string
	for field, holds := range map[string]bool{"spec.catalog": p.CatalogImages.Holds(),
		"spec.consent": p.Consent.Holds(), "spec.deprecated": p.HoldDeprecated} {
		if holds {
			fields = append(fields, field)
		}
	}
	if len(fields) == 0 {
		return verdict.Finding{}
	}
	slices.Sort(fields)
	return verdict.OnHold(in.what(), "what "+text.Join(fields, verdict.MaxListed)+
		" of the policy holds is not known of a ClusterExtension; install it by a Subscription"+
		", "+orOverride).At("spec.source")
}

// heldExtensionUpgrade holds another version than the stored one, or than the installed one of OLM v0, if upgrades are
// not approved. Of a ClusterExtension that was deleted nothing is known.
func heldExtensionUpgrade(in *ClusterExtensionInput, p *operatorpolicy.Policy) verdict.Finding {
	if p.ApproveUpgrades {
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
			from = text.Name(c.Name)
		}
	}
	if from == "" {
		return verdict.Finding{} // a first install needs no upgrade approval
	}
	return verdict.OnHold("the upgrade of "+from+" to "+in.what(), "waits for spec.upgradeApproval: Automatic"+
		", "+orOverride).At("spec.source.catalog.version")
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
			state.Suspended(d.Pending, d.Waits, in.what()))
	}
	b := &constraint.Bundle{Bundle: olm.Bundle{Package: pkg, Version: version},
		Unknown: constraint.OfBundle &^ constraint.Package}
	if version != "" {
		b.Unknown &^= constraint.Version
	}
	for _, f := range set.Judge(b, namespace, constraint.NewBudget(in.Interrupt)) {
		if f.Outcome == constraint.Undecided {
			f.Why, f.Attributes = f.Why+" for a ClusterExtension", constraint.OfBundle
		}
		recordWrite(v, RuleClusterExtensionConstraint, in.what(), &f, constraint.OfBundle)
	}
}

// OverrideAsked returns the override that a write adds.
func (in *ClusterExtensionInput) OverrideAsked() Override {
	return overrideAsked(RuleClusterExtensionOverride, &in.New.Metadata,
		&cmp.Or(in.Old, &olm.ClusterExtension{}).Metadata, in.Now)
}

// foreignExtensionVersion judges spec.source.catalog.version of a ClusterExtension. OLM v1 upgrades within a range by
// itself, so that only one exact version can be allowed. Policies list names of ClusterServiceVersions, of which OLM v1
// knows nothing: the catalog of OLM v0 that the policy names provides their versions.
func foreignExtensionVersion(in *ClusterExtensionInput, p *operatorpolicy.Policy) verdict.Finding {
	version := in.New.Spec.Source.ExactVersion()
	f := verdict.Finding{Decision: verdict.Deny, Field: "spec.source.catalog.version"}
	switch {
	case p.MustNotHave && !p.RestrictsVersions():
		f.Field, f.Accepted = "spec.source.catalog.packageName", "the policy is mustnothave for "+p.ForbiddenText()
		if p.Catalog != (olm.Catalog{}) {
			f.Decision = verdict.Hold
			f.Accepted += ", and which catalogs of OLM v1 have the same is not known"
		}
	case version == "":
		f.Accepted = "OLM v1 upgrades by itself unless it is one exact version; " + acceptedExact(p, in)
	default:
		f.Decision, f.Accepted = judgeExact(p, in, version)
	}
	switch f.Decision {
	case verdict.Allow:
		return verdict.Finding{}
	case verdict.Hold:
		f.What = in.what() + " is held"
	case verdict.Deny:
		f.What = in.what() + " is not allowed"
	}
	f.Accepted += ", " + orOverride
	return f
}

// judgeExact judges an exact version, and returns why it is refused.
func judgeExact(p *operatorpolicy.Policy, in *ClusterExtensionInput, version string) (verdict.Decision, string) {
	within, accepted := inRange(p, version), acceptedExact(p, in)
	if p.MustNotHave {
		accepted = "the policy is mustnothave for " + p.ForbiddenText()
	}
	if p.MustNotHave && !within || len(p.Versions.Entries) == 0 && (p.MustNotHave || within || p.StartingCSV == "") {
		if within != p.MustNotHave {
			return verdict.Allow, ""
		}
		return verdict.Deny, accepted
	}
	names, unknown := namesOfVersion(p, in, version)
	switch {
	case unknown != "" && p.MustNotHave:
		return verdict.Hold, accepted + ", and " + unknown
	case unknown != "":
		return verdict.Hold, unknown + "; " + accepted
	}
	var refused []string
	for _, name := range names {
		switch {
		case p.MustNotHave:
			if p.Versions.Mentions(name) {
				return verdict.Deny, accepted
			}
		case p.Versions.Binds(name):
			return verdict.Hold, "the policy lists " + text.Name(name) +
				" by the digest of its bundle image, which a ClusterExtension does not show"
		case !p.NamesStart(name) && (!within || !p.MayBring(name)):
			refused = append(refused, name)
		}
	}
	switch len(refused) {
	case 0:
		return verdict.Allow, ""
	case len(names):
		return verdict.Deny, accepted
	}
	return verdict.Deny, "OLM v1 may take " + text.Names(refused, verdict.MaxListed) +
		", another release of this version, which the policy does not allow"
}

// inRange reports whether an exact version is in spec.VersionRange; always if there is none.
func inRange(p *operatorpolicy.Policy, version string) bool {
	if p.VersionRange == nil {
		return true
	}
	in, err := p.VersionRange.Contains(version)
	return err == nil && in
}

// namesOfVersion returns the ClusterServiceVersions that the catalog of the policy has in a version, at least one; or
// why that is not known, as a clause. Only the catalog that the policy names counts: another one may be a tenant's.
func namesOfVersion(
	p *operatorpolicy.Policy, in *ClusterExtensionInput, version string,
) (names []string, unknown string) {
	entries, unknown := offeredTo(p, in)
	for _, e := range entries {
		if olm.SameVersion(e.Version, version) && !slices.Contains(names, e.Name) {
			names = append(names, e.Name)
		}
	}
	if unknown == "" && len(names) == 0 {
		unknown = facts.CatalogName(p.Catalog) + " has no version " + text.Quote(version)
	}
	return names, unknown
}

// offeredTo returns all versions of the package in the catalog of the policy, or why they are not known, as a clause.
func offeredTo(p *operatorpolicy.Policy, in *ClusterExtensionInput) (entries []catalog.Entry, unknown string) {
	if p.Catalog.Name == "" || p.Catalog.Namespace == "" {
		return nil, "the policy names no catalog that provides the versions of what it lists " +
			"(spec.subscription.source and sourceNamespace)"
	}
	var offered *catalog.Package
	if in.Package != nil {
		offered = in.Package(in.New.Spec.Source.Package(), p.Catalog)
	}
	if offered == nil {
		return nil, "the versions in " + facts.CatalogName(p.Catalog) + " are not known yet"
	}
	for i := range offered.Channels {
		entries = append(entries, offered.Channels[i].Entries...)
	}
	return entries, ""
}

// acceptedExact returns which exact versions are accepted.
func acceptedExact(p *operatorpolicy.Policy, in *ClusterExtensionInput) string {
	within := ""
	if p.VersionRange != nil {
		within = " in versionRange " + text.Quote(p.VersionRange.String())
	}
	one := "allowed is one version, such as 1.2.3"
	switch {
	case p.MustNotHave:
		return one + ", but none of " + p.ForbiddenText()
	case len(p.Versions.Entries) == 0 && within == "":
		return one
	case len(p.Versions.Entries) == 0:
		return "allowed is one version" + within
	}
	entries, _ := offeredTo(p, in)
	var allowed []string
	for _, e := range entries {
		known := e.Version + " (" + e.Name + ")"
		if (p.Versions.Lists(e.Name) && inRange(p, e.Version) || p.NamesStart(e.Name)) &&
			!slices.Contains(allowed, known) {
			allowed = append(allowed, known)
		}
	}
	if len(allowed) == 0 {
		return "allowed is the version" + within + " of " + text.Names(p.Versions.Entries, verdict.MaxListed)
	}
	return "allowed is " + text.Join(allowed, verdict.MaxListed)
}
