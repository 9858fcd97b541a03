package rules

import (
	"fmt"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on a ClusterServiceVersion, whatever brings it.
const (
	RuleBundleMustNotHave  verdict.RuleID = "bundle/mustnothave"
	RuleBundleVersion      verdict.RuleID = "bundle/version"
	RuleBundleVersionRange verdict.RuleID = "bundle/version-range"
	RuleBundleCatalog      verdict.RuleID = "bundle/catalog"
)

var (
	bundleMustNotHave = verdict.Rule{ID: RuleBundleMustNotHave, Outcomes: verdict.DeniesOrHolds, Override: true,
		Backstop: true,
		Summary:  "a mustnothave policy forbids a ClusterServiceVersion"}
	bundleVersion = verdict.Rule{ID: RuleBundleVersion, Outcomes: verdict.Denies, Override: true, Backstop: true,
		Edit:    listVersion,
		Summary: "a ClusterServiceVersion is not in the policy's versions, or not with the digest that they list"}
	bundleVersionRange = verdict.Rule{ID: RuleBundleVersionRange, Outcomes: verdict.DeniesOrHolds, Override: true,
		Backstop: true, Edit: widenRange,
		Summary: "the version of a ClusterServiceVersion is outside the policy's versionRange, or not known"}
	bundleCatalog = verdict.Rule{ID: RuleBundleCatalog, Outcomes: verdict.DeniesOrHolds, Override: true,
		Edit:    nameCatalog,
		Summary: "a ClusterServiceVersion comes from another catalog than the policy names, or from one that is not known"}
)

// contentChecks judge the contents of a ClusterServiceVersion: all of them, in this order, for every policy of its
// package.
var contentChecks = []struct {
	verdict.Rule
	judge func(*Bundle, *state.OperatorPolicy) verdict.Finding
}{
	// A policy that cannot be read must not let anything through (threat G5).
	{policyUnreadable, func(c *Bundle, p *state.OperatorPolicy) verdict.Finding {
		return unreadable(p, text.Name(c.name))
	}},
	// Forbidden operators are not installed.
	{bundleMustNotHave, forbiddenCSV},
	// The same name from another catalog is other content (threat O6).
	{bundleCatalog, foreignCSVCatalog},
	// Only listed versions are installed.
	{bundleVersion, unlistedCSV},
	// Only versions in the range are installed; 1.10 comes after 1.9 (threat O11).
	{bundleVersionRange, outOfRangeCSV},
}

// isListed reports whether a ClusterServiceVersion is in spec.versions; known is false if that depends on its contents
// and the plan does not show them. An empty list lists everything.
func (c *Bundle) isListed(l *state.VersionList) (match, known bool) {
	if !l.Binds(c.name) {
		return len(l.Entries) == 0 || l.Lists(c.name), true
	}
	digest, unknown := c.digest()
	return l.BindsTo(c.name, digest), unknown == ""
}

// matches reports whether a mustnothave policy matches this CSV; known is false if it might.
func matches(p *state.OperatorPolicy, c *Bundle) (match, known bool) {
	listed, shown := c.isListed(&p.Versions)
	if !listed && shown {
		return false, true
	}
	if p.VersionRange != nil {
		in, err := p.VersionRange.Contains(c.version)
		if err != nil {
			return false, false
		}
		if !in {
			return false, true
		}
	}
	if p.Catalog.Name == "" && p.Catalog.Namespace == "" {
		return listed, shown
	}
	if len(c.catalogs) == 0 {
		return false, c.bypassesOLM && !c.planGone
	}
	for _, catalog := range c.catalogs {
		if p.AllowsCatalog(catalog) {
			return listed, shown
		}
	}
	return false, true
}

func forbiddenCSV(c *Bundle, p *state.OperatorPolicy) verdict.Finding {
	if !p.MustNotHave || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	switch match, known := matches(p, c); {
	case match:
		return verdict.Finding{Decision: verdict.Deny, What: text.Name(c.name) + " is forbidden",
			Accepted: "the policy is mustnothave for " + p.ForbiddenText()}
	case !known:
		missing := "its version or catalog is not known"
		if _, shown := c.isListed(&p.Versions); !shown {
			missing = "the digest of its bundle image is not known"
		}
		return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.name) + " is held",
			Accepted: missing + ", and the policy is mustnothave for " + p.ForbiddenText()}
	}
	return verdict.Finding{}
}

func foreignCSVCatalog(c *Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.Unreadable() != "" || p.Catalog.Name == "" && p.Catalog.Namespace == "" {
		return verdict.Finding{}
	}
	if c.bypassesOLM {
		return verdict.Finding{Decision: verdict.Deny,
			What:     text.Name(c.name) + ", which comes from no catalog, is not allowed",
			Accepted: "allowed is " + p.CatalogText()}
	}
	if len(c.catalogs) == 0 {
		return verdict.Finding{Decision: verdict.Hold,
			What:     "the catalog of " + text.Name(c.name) + " is not known and the plan is held",
			Accepted: "allowed is " + p.CatalogText()}
	}
	for _, catalog := range c.catalogs {
		if !p.AllowsCatalog(catalog) {
			return verdict.Finding{Decision: verdict.Deny, What: fmt.Sprintf("%s from catalog %s/%s is not allowed",
				text.Name(c.name), text.Name(catalog.Namespace), text.Name(catalog.Name)),
				Accepted: "allowed is " + p.CatalogText()}
		}
	}
	return verdict.Finding{}
}

func unlistedCSV(c *Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	if !p.Versions.Binds(c.name) {
		if p.MayBring(c.name) {
			return verdict.Finding{}
		}
		return verdict.Finding{Decision: verdict.Deny, What: text.Name(c.name) + " is not allowed",
			Accepted: p.AcceptedVersions()}
	}
	if match, _ := c.isListed(&p.Versions); match {
		return verdict.Finding{}
	}
	what := text.Name(c.name)
	if digest, unknown := c.digest(); unknown == "" {
		what += "@" + digest
	} else {
		what += ", " + unknown + ","
	}
	return verdict.Finding{Decision: verdict.Deny, What: what + " is not allowed", Accepted: p.AcceptedVersions()}
}

func outOfRangeCSV(c *Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.VersionRange == nil || p.NamesStart(c.name) {
		return verdict.Finding{}
	}
	allowed := "allowed is versionRange " + text.Quote(p.VersionRange.String())
	if c.version == "" {
		return verdict.Finding{Decision: verdict.Hold,
			What: "the version of " + text.Name(c.name) + " is not known and the plan is held", Accepted: allowed}
	}
	in, err := p.VersionRange.Contains(c.version)
	switch {
	case err != nil:
		return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.name) + ", whose " + err.Error() + ", is held",
			Accepted: allowed}
	case !in:
		return verdict.Finding{Decision: verdict.Deny,
			What: text.Name(c.name) + " (version " + olm.VersionText(text.Name(c.version), c.release) +
				") is not allowed", Accepted: allowed}
	}
	return verdict.Finding{}
}
