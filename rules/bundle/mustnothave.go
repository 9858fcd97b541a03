package bundle

import (
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleMustNotHave is on what a mustnothave policy forbids.
const RuleMustNotHave verdict.RuleID = "bundle/mustnothave"

var bundleMustNotHave = verdict.Rule{ID: RuleMustNotHave, Outcomes: verdict.DeniesOrHolds, Override: true,
	Backstop: true, Summary: "a mustnothave policy forbids a ClusterServiceVersion"}

func forbiddenCSV(c *carrier.Bundle, p *state.OperatorPolicy) verdict.Finding {
	if !p.MustNotHave || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	switch match, known := matches(p, c); {
	case match:
		return verdict.Finding{Decision: verdict.Deny, What: text.Name(c.Name) + " is forbidden",
			Accepted: "the policy is mustnothave for " + p.ForbiddenText()}
	case !known:
		missing := "its version or catalog is not known"
		if _, shown := isListed(c, &p.Versions); !shown {
			missing = "the digest of its bundle image is not known"
		}
		return verdict.Finding{Decision: verdict.Hold, What: text.Name(c.Name) + " is held",
			Accepted: missing + ", and the policy is mustnothave for " + p.ForbiddenText()}
	}
	return verdict.Finding{}
}

// matches reports whether a mustnothave policy matches this CSV; known is false if it might.
func matches(p *state.OperatorPolicy, c *carrier.Bundle) (match, known bool) {
	listed, shown := isListed(c, &p.Versions)
	if !listed && shown {
		return false, true
	}
	if p.VersionRange != nil {
		in, err := p.VersionRange.Contains(c.Version)
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
	if len(c.Catalogs) == 0 {
		return false, c.BypassesOLM && !c.PlanGone
	}
	for _, catalog := range c.Catalogs {
		if p.AllowsCatalog(catalog) {
			return listed, shown
		}
	}
	return false, true
}

// Forbids reports whether a mustnothave policy matches a ClusterServiceVersion of its package; known is false if that
// depends on a version or catalog that is not known (zero), or on the digest of its bundle image. Exceptions count at
// the time now.
func Forbids(p *state.OperatorPolicy, csv, version string, catalog olm.Catalog, now time.Time) (match, known bool) {
	if p.ExceptedName(csv, RuleMustNotHave, now) {
		return false, true
	}
	c := &carrier.Bundle{Name: csv, Version: version}
	c.From(catalog)
	return matches(p, c)
}
