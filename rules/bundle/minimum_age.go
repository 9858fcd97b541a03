package bundle

import (
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleMinimumAge is on how long a catalog has offered a version.
const RuleMinimumAge verdict.RuleID = "bundle/minimum-age"

var bundleMinimumAge = verdict.Rule{ID: RuleMinimumAge, Outcomes: verdict.Holds, Override: true,
	Summary: "the catalog has offered a ClusterServiceVersion for less than the policy's minimumAge, or that is not recorded"}

// heldAge holds what a catalog has offered for less time than the policy wants. The message names no time but that of
// the record, so that it is the same until the version is old enough.
func heldAge(in *Input, c *carrier.Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || !p.Age.Holds() || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	// where the digest is not known, names with one do not count
	if digest, _ := c.Digest(); p.Age.Skips(c.Name, digest) {
		return verdict.Finding{}
	}
	held := verdict.Finding{Decision: verdict.Hold, What: text.Name(c.Name) + " is held"}
	seen, unknown := c.FirstSeen(in.Namespace)
	ready := seen.Add(p.Age.Least)
	urgent := "; in an emergency, name it in spec.urgent"
	switch {
	case unknown != "":
		held.Accepted = unknown + ", and spec.minimumAge is " + p.Age.Text + urgent
	case in.Now.IsZero():
		held.Accepted = "waits until the time is known, for spec.minimumAge"
	case in.Now.Before(ready):
		held.Accepted = facts.CatalogName(c.Catalogs[0]) + " has offered it since " + seen.Format(time.RFC3339) +
			", and it is old enough (" + p.Age.Text + ") at " + ready.Format(time.RFC3339) + urgent
	default:
		return verdict.Finding{}
	}
	return held
}
