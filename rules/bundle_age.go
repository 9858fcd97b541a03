package rules

import (
	"slices"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleBundleMinimumAge is on how long a catalog has offered a version.
const RuleBundleMinimumAge verdict.RuleID = "bundle/minimum-age"

var bundleMinimumAge = verdict.Rule{ID: RuleBundleMinimumAge, Outcomes: verdict.Holds, Override: true,
	Summary: "the catalog has offered a ClusterServiceVersion for less than the policy's minimumAge, or that is not recorded"}

// age is spec.minimumAge with spec.urgent, prepared for judging (R-AP-11). The zero value holds nothing.
type age struct {
	least time.Duration
	// text is the duration as the policy has it.
	text string
	// urgent are the names that it does not hold.
	urgent []string
}

func newAge(spec *policyv1beta2.OperatorPolicySpec) age {
	least, err := operatorpolicy.Age(spec.MinimumAge)
	if err != nil {
		return age{} // ValidateGate has the fault
	}
	return age{least: least, text: spec.MinimumAge, urgent: operatorpolicy.SplitVersions(spec.Urgent)}
}

// holds reports whether any plan may be held.
func (a *age) holds() bool { return a.least > 0 }

// skips reports whether spec.urgent names a ClusterServiceVersion, or it with the digest of its bundle image.
func (a *age) skips(c *Bundle) bool {
	digest, _ := c.digest() // where it is not known, names with a digest do not count
	return slices.Contains(a.urgent, c.name) || digest != "" && slices.Contains(a.urgent, c.name+"@"+digest)
}

// AgedPackages returns the packages of a catalog of which policies here hold young versions.
func (n *Namespace) AgedPackages(of olm.Catalog) []string {
	var packages []string
	for _, p := range n.Policies() {
		if !p.MustNotHave && p.age.holds() && slices.Contains(n.catalogsOf(p), of) {
			packages = append(packages, p.Package)
		}
	}
	return packages
}

// firstSeen returns when the catalog of a ClusterServiceVersion first offered it, or why that is not known.
func (c *Bundle) firstSeen(n *Namespace) (seen time.Time, unknown string) {
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
	if _, unknown = RunningDigest(around, from); unknown != "" {
		return seen, unknown
	}
	return seen, "it is not recorded yet when " + CatalogName(from) + " first offered it"
}

// heldAge holds what a catalog has offered for less time than the policy wants. The message names no time but that of
// the record, so that it is the same until the version is old enough.
func heldAge(in *PlanInput, c *Bundle, p *OperatorPolicy) verdict.Finding {
	if p.MustNotHave || !p.age.holds() || p.faults != "" || p.age.skips(c) {
		return verdict.Finding{}
	}
	held := verdict.Finding{Decision: verdict.Hold, What: text.Name(c.name) + " is held"}
	seen, unknown := c.firstSeen(in.Namespace)
	ready := seen.Add(p.age.least)
	urgent := "; in an emergency, name it in spec.urgent"
	switch {
	case unknown != "":
		held.Accepted = unknown + ", and spec.minimumAge is " + p.age.text + urgent
	case in.Now.IsZero():
		held.Accepted = "waits until the time is known, for spec.minimumAge"
	case in.Now.Before(ready):
		held.Accepted = CatalogName(c.catalogs[0]) + " has offered it since " + seen.Format(time.RFC3339) +
			", and it is old enough (" + p.age.text + ") at " + ready.Format(time.RFC3339) + urgent
	default:
		return verdict.Finding{}
	}
	return held
}

// nextAge returns when the first version of a plan that waits is old enough; zero if none is too young.
func (n *Namespace) nextAge(now time.Time) time.Time {
	var next time.Time
	if !slices.ContainsFunc(n.enforcing(), func(p *OperatorPolicy) bool { return p.age.holds() && !p.MustNotHave }) {
		return next
	}
	for _, plan := range n.Plans() {
		if !n.Waits(plan) {
			continue
		}
		bundles := bundlesOf(plan, n)
		for i := range bundles {
			seen, unknown := bundles[i].firstSeen(n)
			for _, p := range n.governing(bundles[i].pkg) {
				ready := seen.Add(p.age.least)
				if unknown == "" && p.age.holds() && now.Before(ready) && (next.IsZero() || ready.Before(next)) {
					next = ready
				}
			}
		}
	}
	return next
}
