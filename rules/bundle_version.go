package rules

import (
	"fmt"
	"strings"

	"github.com/opgate/opgate/internal/text"
)

// The rules on a ClusterServiceVersion, whatever brings it.
const (
	RuleBundleMustNotHave  RuleID = "bundle/mustnothave"
	RuleBundleVersion      RuleID = "bundle/version"
	RuleBundleVersionRange RuleID = "bundle/version-range"
	RuleBundleCatalog      RuleID = "bundle/catalog"
)

var (
	bundleMustNotHave = Rule{ID: RuleBundleMustNotHave, Outcomes: denyOrHold, Override: true, Backstop: true,
		Summary: "a mustnothave policy forbids a ClusterServiceVersion"}
	bundleVersion = Rule{ID: RuleBundleVersion, Outcomes: deny, Override: true, Backstop: true, Edit: listVersion,
		Summary: "a ClusterServiceVersion is not in the policy's versions, or not with the digest that they list"}
	bundleVersionRange = Rule{ID: RuleBundleVersionRange, Outcomes: denyOrHold, Override: true, Backstop: true, Edit: widenRange,
		Summary: "the version of a ClusterServiceVersion is outside the policy's versionRange, or not known"}
	bundleCatalog = Rule{ID: RuleBundleCatalog, Outcomes: denyOrHold, Override: true, Edit: nameCatalog,
		Summary: "a ClusterServiceVersion comes from another catalog than the policy names, or from one that is not known"}
)

// contentChecks judge the contents of a ClusterServiceVersion: all of them, in this order, for every policy of its
// package.
var contentChecks = []struct {
	Rule
	judge func(*Bundle, *OperatorPolicy) finding
}{
	// A policy that cannot be read must not let anything through (threat G5).
	{policyUnreadable, func(c *Bundle, p *OperatorPolicy) finding { return unreadable(p, text.Name(c.name)) }},
	// Forbidden operators are not installed.
	{bundleMustNotHave, forbiddenCSV},
	// The same name from another catalog is other content (threat O6).
	{bundleCatalog, foreignCSVCatalog},
	// Only listed versions are installed.
	{bundleVersion, unlistedCSV},
	// Only versions in the range are installed; 1.10 comes after 1.9 (threat O11).
	{bundleVersionRange, outOfRangeCSV},
}

// matches reports whether a mustnothave policy matches this CSV; known is false if it might.
func (p *OperatorPolicy) matches(c *Bundle) (match, known bool) {
	listed, shown := p.versions.matches(c)
	if !listed && shown {
		return false, true
	}
	if p.versionRange != nil {
		in, err := p.versionRange.Contains(c.version)
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
		if !p.catalogMismatch(catalog) {
			return listed, shown
		}
	}
	return false, true
}

func forbiddenCSV(c *Bundle, p *OperatorPolicy) finding {
	if !p.MustNotHave || p.faults != "" {
		return finding{}
	}
	switch match, known := p.matches(c); {
	case match:
		return finding{decision: Deny, what: text.Name(c.name) + " is forbidden", accepted: "the policy is mustnothave for " + p.scope()}
	case !known:
		missing := "its version or catalog is not known"
		if _, shown := p.versions.matches(c); !shown {
			missing = "the digest of its bundle image is not known"
		}
		return finding{decision: Hold, what: text.Name(c.name) + " is held", accepted: missing + ", and the policy is mustnothave for " + p.scope()}
	}
	return finding{}
}

// scope returns what a mustnothave policy forbids.
func (p *OperatorPolicy) scope() string {
	var parts []string
	if len(p.versions.entries) > 0 {
		parts = append(parts, text.Names(p.versions.entries, maxListed))
	} else {
		parts = append(parts, "package "+p.Package)
	}
	if p.versionRange != nil {
		parts = append(parts, "in range "+text.Quote(p.versionRange.String()))
	}
	if p.Catalog.Name != "" || p.Catalog.Namespace != "" {
		parts = append(parts, "from "+p.catalogText())
	}
	return strings.Join(parts, " ")
}

func foreignCSVCatalog(c *Bundle, p *OperatorPolicy) finding {
	if p.MustNotHave || p.faults != "" || p.Catalog.Name == "" && p.Catalog.Namespace == "" {
		return finding{}
	}
	if c.bypassesOLM {
		return finding{decision: Deny, what: text.Name(c.name) + ", which comes from no catalog, is not allowed", accepted: "allowed is " + p.catalogText()}
	}
	if len(c.catalogs) == 0 {
		return finding{decision: Hold, what: "the catalog of " + text.Name(c.name) + " is not known and the plan is held", accepted: "allowed is " + p.catalogText()}
	}
	for _, catalog := range c.catalogs {
		if p.catalogMismatch(catalog) {
			return finding{decision: Deny, what: fmt.Sprintf("%s from catalog %s/%s is not allowed", text.Name(c.name), text.Name(catalog.Namespace), text.Name(catalog.Name)),
				accepted: "allowed is " + p.catalogText()}
		}
	}
	return finding{}
}

func unlistedCSV(c *Bundle, p *OperatorPolicy) finding {
	if p.MustNotHave || p.faults != "" {
		return finding{}
	}
	if !p.versions.binds(c.name) {
		if p.mayBring(c.name) {
			return finding{}
		}
		return finding{decision: Deny, what: text.Name(c.name) + " is not allowed", accepted: p.acceptedVersions()}
	}
	if match, _ := p.versions.matches(c); match {
		return finding{}
	}
	what := text.Name(c.name)
	if digest, unknown := c.digest(); unknown == "" {
		what += "@" + digest
	} else {
		what += ", " + unknown + ","
	}
	return finding{decision: Deny, what: what + " is not allowed", accepted: p.acceptedVersions()}
}

func outOfRangeCSV(c *Bundle, p *OperatorPolicy) finding {
	if p.MustNotHave || p.versionRange == nil || p.namesStart(c.name) {
		return finding{}
	}
	allowed := "allowed is versionRange " + text.Quote(p.versionRange.String())
	if c.version == "" {
		return finding{decision: Hold, what: "the version of " + text.Name(c.name) + " is not known and the plan is held", accepted: allowed}
	}
	in, err := p.versionRange.Contains(c.version)
	switch {
	case err != nil:
		return finding{decision: Hold, what: text.Name(c.name) + ", whose " + err.Error() + ", is held", accepted: allowed}
	case !in:
		return finding{decision: Deny, what: text.Name(c.name) + " (version " + text.Name(c.version) + ") is not allowed", accepted: allowed}
	}
	return finding{}
}
