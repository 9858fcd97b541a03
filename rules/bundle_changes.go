package rules

import (
	"encoding/hex"
	"slices"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
)

// Read returns a namespace with what is read for its unfinished plans: their packages and what they change, as far as
// plans are judged by these. A source that is nil knows nothing. Sources may need requests, so that they are read here
// and not while a request is judged.
func Read(n *state.Namespace, packages state.Packages, changes state.Changes) *state.Namespace {
	r := state.Readings{Packages: readPackages(n, packages), Changes: readChanges(n, changes)}
	if r.Packages == nil && r.Changes == nil {
		return n
	}
	return n.WithReadings(r)
}

// readChanges returns what unfinished plans change, if a policy or a Constraint judges by it; nil if none does.
func readChanges(n *state.Namespace, from state.Changes) map[state.PlanKey]*state.PlanChanges {
	if from == nil || len(n.Plans()) == 0 {
		return nil
	}
	all := n.Constraints().Reads(constraint.ChangeSet)
	unpacked := n.Constraints().Reads(constraint.InCSV) && n.Constraints().Depends(constraint.InCSV, n.ForConstraints())
	if !all && !unpacked && !slices.ContainsFunc(n.Policies(), (*state.OperatorPolicy).ReviewsChanges) {
		return nil
	}
	changes := map[state.PlanKey]*state.PlanChanges{}
	for _, plan := range n.Plans() {
		if plan.Finished() {
			continue
		}
		csvs := bundlesOf(plan, n)
		needed := slices.ContainsFunc(csvs, func(c Bundle) bool {
			return all && c.pkg != "" || unpacked && c.byReference() ||
				slices.ContainsFunc(n.Governing(c.pkg), (*state.OperatorPolicy).ReviewsChanges)
		})
		if needed {
			changes[state.KeyOf(plan)] = from(plan, replacements(n, csvs, unpacked))
		}
	}
	return changes
}

// replacements returns what ClusterServiceVersions of a plan replace. Those of an unknown package replace nothing that
// is known; they are included if only their contents are needed.
func replacements(n *state.Namespace, csvs []Bundle, unknown bool) []state.Replacement {
	var replacements []state.Replacement
	for i := range csvs {
		if c := &csvs[i]; unknown || c.pkg != "" {
			replacements = append(replacements, replacementBy(n, c))
		}
	}
	return replacements
}

// Replacements returns the ClusterServiceVersions of a plan, and what each replaces in the namespace. Those of an
// unknown package are missing.
func Replacements(n *state.Namespace, plan *olm.InstallPlan) []state.Replacement {
	return replacements(n, bundlesOf(plan, n), false)
}

// replacementBy returns what a ClusterServiceVersion of a plan replaces here.
func replacementBy(n *state.Namespace, c *Bundle) state.Replacement {
	r := state.Replacement{CSV: c.name, Package: c.pkg, Version: c.version, Release: c.release}
	if c.pkg != "" {
		r.From = n.InstalledOf(c.pkg, c.name)
	}
	if len(c.catalogs) == 1 {
		r.Catalog = c.catalogs[0]
	}
	if channels := n.Channels(c.pkg); len(channels) == 1 {
		r.Channel = channels[0]
	}
	for i := range n.Installed() {
		if installed := &n.Installed()[i]; r.From != "" && installed.CSV == r.From {
			r.FromVersion, r.FromDigest = installed.Version, installed.ContentsDigest()
			r.FromRelease = installed.Release()
			r.FromPlan = n.PlanThatInstalled(r.From)
		}
	}
	return r
}

// changeOf returns what a ClusterServiceVersion of a plan changes, or why that is not known.
func changeOf(n *state.Namespace, plan *olm.InstallPlan, c *Bundle) (set *change.Set, unknown string) {
	known, unknown := n.ReadingOf(plan)
	if unknown != "" {
		return nil, unknown
	}
	set = known.ByCSV[c.name]
	i := slices.IndexFunc(known.Replacements, func(r state.Replacement) bool { return r.CSV == c.name })
	if set == nil || i < 0 || c.pkg == "" {
		return nil, notRead
	}
	if set.Fault != "" {
		return nil, "its contents are not known: " + text.Truncate(text.Escape(set.Fault), maxFault)
	}
	now := replacementBy(n, c)
	if was := &known.Replacements[i]; set.From != now.From || was.From != now.From || was.FromDigest != now.FromDigest {
		return nil, "its contents were not compared with what is installed now"
	}
	if r := n.Recorded(now.From); r != nil && len(n.Governing(c.pkg)) > 0 &&
		r.Digest != hex.EncodeToString(now.FromDigest[:]) {
		return nil, "what is installed has not the contents that are recorded of " + text.Name(now.From)
	}
	if set.Digest() == "" {
		return nil, "its contents have no digest"
	}
	return set, ""
}

const notRead = "its contents are not among those that were read"

// unpackedOf returns what OLM unpacked of a ClusterServiceVersion that a plan refers to, or why that is not known.
func unpackedOf(n *state.Namespace, c *Bundle) (bundle *state.UnpackedBundle, unknown string) {
	if c.plan == nil {
		return nil, "no InstallPlan brings it"
	}
	known, unknown := n.ReadingOf(c.plan)
	if unknown != "" {
		return nil, unknown
	}
	bundle = known.Bundles[c.name]
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

// changes sets what Constraints read of the change that a ClusterServiceVersion of a plan makes.
func (c *Bundle) changes(b *constraint.Bundle, ns *state.Namespace) {
	b.Unknown |= constraint.ChangeSet
	if c.plan == nil || ns == nil {
		return
	}
	set, unknown := changeOf(ns, c.plan, c)
	if unknown != "" {
		return
	}
	b.Unknown &^= constraint.ChangeSet
	b.Change = &constraint.Change{Digest: set.Digest(), From: set.From, Lists: map[string][]string{}}
	for _, d := range set.Differences {
		b.Change.Lists[string(d.Class)] = append(b.Change.Lists[string(d.Class)], d.Text)
		if d.Risk == change.Risky {
			b.Change.Lists["risky"] = append(b.Change.Lists["risky"], d.Text)
		}
	}
}
