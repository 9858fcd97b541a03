package bundle

import (
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on the version of a ClusterServiceVersion.
const (
	RuleVersion      verdict.RuleID = "bundle/version"
	RuleVersionRange verdict.RuleID = "bundle/version-range"
)

var (
	bundleVersion = verdict.Rule{ID: RuleVersion, Outcomes: verdict.Denies, Override: true, Backstop: true,
		Edit:    listVersion,
		Summary: "a ClusterServiceVersion is not in the policy's versions, or not with the digest that they list"}
	bundleVersionRange = verdict.Rule{ID: RuleVersionRange, Outcomes: verdict.DeniesOrHolds, Override: true,
		Backstop: true, Edit: widenRange,
		Summary: "the version of a ClusterServiceVersion is outside the policy's versionRange, or not known"}
)

// isListed reports whether a ClusterServiceVersion is in spec.versions; known is false if that depends on its contents
// and the plan does not show them. An empty list lists everything.
func isListed(c *carrier.Bundle, l *state.VersionList) (match, known bool) {
	if !l.Binds(c.Name) {
		return len(l.Entries) == 0 || l.Lists(c.Name), true
	}
	digest, unknown := c.Digest()
	return l.BindsTo(c.Name, digest), unknown == ""
}

func unlistedCSV(c *carrier.Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	if !p.Versions.Binds(c.Name) {
		if p.MayBring(c.Name) {
			return verdict.Finding{}
		}
		return verdict.Finding{Decision: verdict.Deny, What: text.Name(c.Name) + " is not allowed",
			Accepted: p.AcceptedVersions()}
	}
	if match, _ := isListed(c, &p.Versions); match {
		return verdict.Finding{}
	}
	what := text.Name(c.Name)
	if digest, unknown := c.Digest(); unknown == "" {
		what += "@" + digest
	} else {
		what += ", " + unknown + ","
	}
	return verdict.Finding{Decision: verdict.Deny, What: what + " is not allowed", Accepted: p.AcceptedVersions()}
}

func outOfRangeCSV(c *carrier.Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.VersionRange == nil || p.NamesStart(c.Name) {
		return verdict.Finding{}
	}
	allowed := "allowed is versionRange " + text.Quote(p.VersionRange.String())
	if c.Version == "" {
		return verdict.Finding{Decision: verdict.Hold,
			What: "the version of " + text.Name(c.Name) + " is not known and the plan is held", Accepted: allowed}
	}
	in, err := p.VersionRange.Contains(c.Version)
	switch {
	case err != nil:
		return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.Name) + ", whose " + err.Error() + ", is held",
			Accepted: allowed}
	case !in:
		return verdict.Finding{Decision: verdict.Deny,
			What: text.Name(c.Name) + " (version " + olm.VersionText(text.Name(c.Version), c.Release) +
				") is not allowed", Accepted: allowed}
	}
	return verdict.Finding{}
}

// Covers reports whether a musthave policy wants a ClusterServiceVersion of its package to be installed; if not,
// accepted is what it wants instead. What is installed does not show its digest, so the name decides. Exceptions count
// at the time now.
func Covers(p *state.OperatorPolicy, csv, version string, now time.Time) (ok bool, accepted string) {
	c := &carrier.Bundle{Name: csv, Version: version}
	listed := p.MustNotHave || p.Unreadable() != "" || p.MayBring(csv) || p.ExceptedName(csv, RuleVersion, now)
	if listed && (outOfRangeCSV(c, p).Silent() || p.ExceptedName(csv, RuleVersionRange, now)) {
		return true, ""
	}
	return false, p.Acceptance()
}

// InRange reports whether the version of a ClusterServiceVersion is in spec.versionRange of its policy, if it has one.
func InRange(p *state.OperatorPolicy, csv, version string) bool {
	return outOfRangeCSV(&carrier.Bundle{Name: csv, Version: version}, p).Silent()
}
