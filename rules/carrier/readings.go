package carrier

import (
	"slices"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// Read returns a namespace with what is read for its unfinished plans: their packages, if a policy or a Constraint judges
// by deprecations, and what they change, if one judges by that. A source that is nil knows nothing. Sources may need
// requests, and may be slow or absent, so that they are read here and not while a request is judged.
func Read(n *state.Namespace, packages state.Packages, changes state.Changes) *state.Namespace {
	if len(n.Plans()) == 0 {
		return n
	}
	set, reviews := n.Constraints(), (*operatorpolicy.Policy).ReviewsChanges
	holds := func(p *operatorpolicy.Policy) bool { return p.HoldDeprecated }
	anyDeprecated, anyChange := set.Reads(constraint.Deprecation), set.Reads(constraint.ChangeSet)
	unpacked := set.Reads(constraint.InCSV) && set.Depends(constraint.InCSV, n.ForConstraints())
	r := state.Readings{}
	if packages != nil && (anyDeprecated || slices.ContainsFunc(n.Policies(), holds)) {
		r.Packages = map[state.PackageKey]*catalog.Package{}
	}
	if changes != nil && (anyChange || unpacked || slices.ContainsFunc(n.Policies(), reviews)) {
		r.Changes = map[state.PlanKey]*state.PlanChanges{}
	}
	if r.Packages == nil && r.Changes == nil {
		return n
	}
	for _, plan := range n.Plans() {
		if plan.Finished() {
			continue
		}
		compared, csvs := false, OfPlan(plan, n)
		for i := range csvs {
			c := &csvs[i]
			if r.Packages != nil && c.Catalog != (olm.Catalog{}) && c.Package != "" &&
				(anyDeprecated || slices.ContainsFunc(n.Governing(c.Package), holds)) {
				r.Packages[state.PackageKey{Name: c.Package, Source: c.Catalog}] = packages(c.Package, c.Name, c.Catalog)
			}
			compared = compared || anyChange && c.Package != "" || unpacked && c.byReference() ||
				slices.ContainsFunc(n.Governing(c.Package), reviews)
		}
		if r.Changes != nil && compared {
			r.Changes[state.KeyOf(plan)] = changes(plan, replacements(n, csvs, unpacked))
		}
	}
	return n.WithReadings(r)
}

// replacements returns what ClusterServiceVersions of a plan replace. Those of an unknown package replace nothing that
// is known; they are included if only their contents are needed.
func replacements(n *state.Namespace, csvs []Bundle, unknown bool) []state.Replacement {
	var replacements []state.Replacement
	for i := range csvs {
		if c := &csvs[i]; unknown || c.Package != "" {
			replacements = append(replacements, replacementBy(n, c))
		}
	}
	return replacements
}

// Replacements returns the ClusterServiceVersions of a plan, and what each replaces in the namespace. Those of an
// unknown package are missing.
func Replacements(n *state.Namespace, plan *olm.InstallPlan) []state.Replacement {
	return replacements(n, OfPlan(plan, n), false)
}

// replacementBy returns what a ClusterServiceVersion of a plan replaces here.
func replacementBy(n *state.Namespace, c *Bundle) state.Replacement {
	r := state.Replacement{CSV: c.Name, Package: c.Package, Version: c.Version, Release: c.Release, Catalog: c.Catalog}
	if c.Package != "" {
		r.From = n.InstalledOf(c.Package, c.Name)
	}
	if channels := n.Channels(c.Package); len(channels) == 1 {
		r.Channel = channels[0]
	}
	for i := range n.Installed() {
		if installed := &n.Installed()[i]; r.From != "" && installed.Name == r.From {
			r.FromVersion, r.FromRelease = installed.Version, installed.Release
			if installed.Spec != nil {
				r.FromDigest = installed.Spec.ContentsDigest()
			}
			r.FromPlan = n.PlanThatInstalled(r.From)
		}
	}
	return r
}

// ChangeOf returns what a ClusterServiceVersion of a plan changes, or why that is not known.
func ChangeOf(n *state.Namespace, plan *olm.InstallPlan, c *Bundle) (set *change.Set, unknown string) {
	known, unknown := n.ReadingOf(plan)
	if unknown != "" {
		return nil, unknown
	}
	set = known.ByCSV[c.Name]
	i := slices.IndexFunc(known.Replacements, func(r state.Replacement) bool { return r.CSV == c.Name })
	if set == nil || i < 0 || c.Package == "" {
		return nil, notRead
	}
	if set.Fault != "" {
		return nil, "its contents are not known: " + text.Truncate(text.Escape(set.Fault), maxFault)
	}
	now := replacementBy(n, c)
	if was := &known.Replacements[i]; set.From != now.From || was.From != now.From || was.FromDigest != now.FromDigest {
		return nil, "its contents were not compared with what is installed now"
	}
	if n.Recorded(now.From) != nil && len(n.Governing(c.Package)) > 0 && !n.InstalledAsRecorded(now.From) {
		return nil, "what is installed has not the contents that are recorded of " + text.Name(now.From)
	}
	if set.Digest() == "" {
		return nil, "its contents have no digest"
	}
	return set, ""
}

const notRead = "its contents are not among those that were read"

// unpackedOf returns what OLM unpacked of a ClusterServiceVersion that a plan refers to, or why that is not known.
func unpackedOf(n *state.Namespace, c *Bundle) (bundle *olm.Bundle, unknown string) {
	if c.Plan == nil {
		return nil, "no InstallPlan installs it"
	}
	known, unknown := n.ReadingOf(c.Plan)
	if unknown != "" {
		return nil, unknown
	}
	bundle = known.Bundles[c.Name]
	switch {
	case bundle == nil:
		return nil, notRead
	case bundle.Fault != "":
		return nil, text.Truncate(text.Escape(bundle.Fault), maxFault)
	}
	return bundle, ""
}

// maxFault bounds why contents cannot be read, in bytes.
const maxFault = 512
