package rules

import (
	"time"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
)

// Covers reports whether a musthave policy wants a ClusterServiceVersion of its package to be installed; if not,
// accepted is what it wants instead. What is installed does not show its digest, so the name decides. Exceptions count
// at the time now.
func Covers(p *state.OperatorPolicy, csv, version string, now time.Time) (ok bool, accepted string) {
	c := &Bundle{name: csv, version: version}
	listed := p.MustNotHave || p.Unreadable() != "" || p.MayBring(csv) || p.ExceptedName(csv, RuleBundleVersion, now)
	if listed && (outOfRangeCSV(c, p).Silent() || p.ExceptedName(csv, RuleBundleVersionRange, now)) {
		return true, ""
	}
	return false, p.Acceptance()
}

// Forbids reports whether a mustnothave policy matches a ClusterServiceVersion of its package; known is false if that
// depends on a version or catalog that is not known (zero), or on the digest of its bundle image. Exceptions count at
// the time now.
func Forbids(p *state.OperatorPolicy, csv, version string, catalog olm.Catalog, now time.Time) (match, known bool) {
	if p.ExceptedName(csv, RuleBundleMustNotHave, now) {
		return false, true
	}
	c := &Bundle{name: csv, version: version}
	c.from(catalog)
	return matches(p, c)
}
