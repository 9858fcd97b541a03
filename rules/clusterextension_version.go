package rules

import (
	"slices"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// foreignExtensionVersion judges spec.source.catalog.version of a ClusterExtension. OLM v1 upgrades within a range by
// itself, so that only one exact version can be allowed. Policies list names of ClusterServiceVersions, of which OLM v1
// knows nothing: the catalog of OLM v0 that the policy names provides their versions.
func foreignExtensionVersion(in *ClusterExtensionInput, p *state.OperatorPolicy) verdict.Finding {
	if p.Unreadable() != "" {
		return verdict.Finding{}
	}
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
	case p.MustNotHave:
		f.Decision, f.Accepted = forbidsExact(p, in, version)
	default:
		f.Decision, f.Accepted = allowsExact(p, in, version)
	}
	switch f.Decision {
	case verdict.Allow:
		return verdict.Finding{}
	case verdict.Hold:
		f.What = in.what() + " is held"
	case verdict.Deny:
		f.What = in.what() + " is not allowed"
	}
	f.Accepted += orOverrideExtension
	return f
}

// forbidsExact judges an exact version by a mustnothave policy that restricts versions, and returns why it is refused.
func forbidsExact(p *state.OperatorPolicy, in *ClusterExtensionInput, version string) (verdict.Decision, string) {
	forbidden := "the policy is mustnothave for " + p.ForbiddenText()
	if !inRange(p, version) {
		return verdict.Allow, ""
	}
	if len(p.Versions.Entries) == 0 {
		return verdict.Deny, forbidden
	}
	names, unknown := namesOfVersion(p, in, version)
	switch {
	case unknown != "":
		return verdict.Hold, forbidden + ", and " + unknown
	case slices.ContainsFunc(names, func(name string) bool { return p.Versions.Lists(name) || p.Versions.Binds(name) }):
		return verdict.Deny, forbidden
	}
	return verdict.Allow, ""
}

// allowsExact judges an exact version by a policy that allows only what it matches, and returns why it is refused.
func allowsExact(p *state.OperatorPolicy, in *ClusterExtensionInput, version string) (verdict.Decision, string) {
	within := inRange(p, version)
	if len(p.Versions.Entries) == 0 && (within || p.StartingCSV == "") {
		if within {
			return verdict.Allow, ""
		}
		return verdict.Deny, acceptedExact(p, in)
	}
	names, unknown := namesOfVersion(p, in, version)
	if unknown != "" {
		return verdict.Hold, unknown + "; " + acceptedExact(p, in)
	}
	var others []string
	for _, name := range names {
		switch {
		case p.Versions.Binds(name):
			return verdict.Hold, "the policy lists " + text.Name(name) +
				" by the digest of its bundle image, which a ClusterExtension does not show"
		case !p.NamesStart(name) && (!within || !p.MayBring(name)):
			others = append(others, name)
		}
	}
	switch len(others) {
	case 0:
		return verdict.Allow, ""
	case len(names):
		return verdict.Deny, acceptedExact(p, in)
	default:
		return verdict.Deny, "OLM v1 may take " + text.Names(others, verdict.MaxListed) +
			", another release of this version, " +
			"which the policy does not allow"
	}
}

// inRange reports whether an exact version is in spec.VersionRange; always if there is none.
func inRange(p *state.OperatorPolicy, version string) bool {
	if p.VersionRange == nil {
		return true
	}
	in, err := p.VersionRange.Contains(version)
	return err == nil && in
}

// namesOfVersion returns the ClusterServiceVersions that the catalog of the policy has in a version, at least one; or
// why that is not known, as a clause. Only the catalog that the policy names counts: another one may be a tenant's.
func namesOfVersion(
	p *state.OperatorPolicy, in *ClusterExtensionInput, version string,
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
func offeredTo(p *state.OperatorPolicy, in *ClusterExtensionInput) (entries []catalog.Entry, unknown string) {
	if p.Catalog.Name == "" || p.Catalog.Namespace == "" {
		return nil, "the policy names no catalog that gives the versions of what it lists " +
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
func acceptedExact(p *state.OperatorPolicy, in *ClusterExtensionInput) string {
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
