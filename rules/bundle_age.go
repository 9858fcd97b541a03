package rules

import (
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleBundleMinimumAge is on how long a catalog has offered a version.
const RuleBundleMinimumAge verdict.RuleID = "bundle/minimum-age"

var bundleMinimumAge = verdict.Rule{ID: RuleBundleMinimumAge, Outcomes: verdict.Holds, Override: true,
	Summary: "the catalog has offered a ClusterServiceVersion for less than the policy's minimumAge, or that is not recorded"}

// firstSeen returns when the catalog of a ClusterServiceVersion first offered it, or why that is not known.
func (c *Bundle) firstSeen(n *state.Namespace) (seen time.Time, unknown string) {
	if len(c.catalogs) != 1 {
		return seen, "its catalog is not known, or sources disagree about it"
	}
	around, from := n.Facts(), c.catalogs[0]
	// The record is of what images offered, of which a catalog that OLM connects to elsewhere need not offer any
	// (threats O68 and O69). It counts while pods are replaced.
	source, exists := around.Catalogs[from]
	if history, known := around.Histories[from]; known && (!exists || source.ServedImage() != "") {
		if seen = history.FirstSeen(c.pkg, c.name); !seen.IsZero() {
			return seen, ""
		}
	}
	if _, unknown = around.RunningDigest(from); unknown != "" {
		return seen, unknown
	}
	return seen, "it is not recorded yet when " + facts.CatalogName(from) + " first offered it"
}

// heldAge holds what a catalog has offered for less time than the policy wants. The message names no time but that of
// the record, so that it is the same until the version is old enough.
func heldAge(in *PlanInput, c *Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || !p.Age.Holds() || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	// where the digest is not known, names with one do not count
	if digest, _ := c.digest(); p.Age.Skips(c.name, digest) {
		return verdict.Finding{}
	}
	held := verdict.Finding{Decision: verdict.Hold, What: text.Name(c.name) + " is held"}
	seen, unknown := c.firstSeen(in.Namespace)
	ready := seen.Add(p.Age.Least)
	urgent := "; in an emergency, name it in spec.urgent"
	switch {
	case unknown != "":
		held.Accepted = unknown + ", and spec.minimumAge is " + p.Age.Text + urgent
	case in.Now.IsZero():
		held.Accepted = "waits until the time is known, for spec.minimumAge"
	case in.Now.Before(ready):
		held.Accepted = facts.CatalogName(c.catalogs[0]) + " has offered it since " + seen.Format(time.RFC3339) +
			", and it is old enough (" + p.Age.Text + ") at " + ready.Format(time.RFC3339) + urgent
	default:
		return verdict.Finding{}
	}
	return held
}
