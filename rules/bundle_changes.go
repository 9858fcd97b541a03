package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/constraint"
)

// planKey identifies a plan: OLM reuses names, and manifests that no API server has stored have no UID.
type planKey struct{ uid, name string }

func keyOf(p *olm.InstallPlan) planKey { return planKey{p.Metadata.UID, p.Metadata.Name} }

// readChanges reads what unfinished plans change, if a policy or a Constraint judges by it. Reading contents takes
// requests, so that they are read here and not while a request is judged.
func (n *Namespace) readChanges(from Changes) {
	if from == nil || len(n.plans) == 0 {
		return
	}
	all := n.constraints.Reads(constraint.ChangeSet)
	unpacked := n.constraints.Reads(constraint.InCSV) && n.constraints.Depends(constraint.InCSV, n.forConstraints)
	if !all && !unpacked && !slices.ContainsFunc(n.policies, (*OperatorPolicy).consents) {
		return
	}
	n.changes = map[planKey]*PlanChanges{}
	for _, plan := range n.plans {
		if plan.Finished() {
			continue
		}
		csvs := bundlesOf(plan, n)
		needed := slices.ContainsFunc(csvs, func(c Bundle) bool {
			return all && c.pkg != "" || unpacked && c.byReference() ||
				slices.ContainsFunc(n.governing(c.pkg), (*OperatorPolicy).consents)
		})
		if needed {
			n.changes[keyOf(plan)] = from(plan, n.replacements(csvs, unpacked))
		}
	}
}

// replacements returns what ClusterServiceVersions of a plan replace. Those of an unknown package replace nothing that
// is known; they are included if only their contents are needed.
func (n *Namespace) replacements(csvs []Bundle, unknown bool) []Replacement {
	var replacements []Replacement
	for i := range csvs {
		if c := &csvs[i]; unknown || c.pkg != "" {
			replacements = append(replacements, n.replacementBy(c))
		}
	}
	return replacements
}

// Replacements returns the ClusterServiceVersions of a plan, and what each replaces in the namespace. Those of an
// unknown package are missing.
func (n *Namespace) Replacements(plan *olm.InstallPlan) []Replacement {
	return n.replacements(bundlesOf(plan, n), false)
}

// consents reports whether a policy may hold or warn of changes.
func (p *OperatorPolicy) consents() bool {
	return !p.MustNotHave && p.faults == "" && (p.consent.reviews(false) || p.consent.reviews(true))
}

// replacementBy returns what a ClusterServiceVersion of a plan replaces here.
func (n *Namespace) replacementBy(c *Bundle) Replacement {
	r := Replacement{CSV: c.name, Package: c.pkg, Version: c.version, Release: c.release}
	if c.pkg != "" {
		r.From = n.installedOf(c.pkg, c.name)
	}
	if len(c.catalogs) == 1 {
		r.Catalog = c.catalogs[0]
	}
	if channels := n.channels(c.pkg); len(channels) == 1 {
		r.Channel = channels[0]
	}
	for i := range n.installed {
		if installed := &n.installed[i]; r.From != "" && installed.CSV == r.From {
			r.FromVersion, r.FromDigest = installed.Version, installed.contentsDigest()
			r.FromRelease = installed.Release()
			r.FromPlan = n.planThatInstalled(r.From)
		}
	}
	return r
}

// planThatInstalled returns the completed plan that wrote a ClusterServiceVersion. Of several, one may be forged
// (threat O49): then none is.
func (n *Namespace) planThatInstalled(csv string) string {
	found := ""
	for _, plan := range n.plans {
		if !plan.Installed(csv) || n.Planted(plan, csv) {
			continue
		}
		if found != "" {
			return ""
		}
		found = plan.Metadata.Name
	}
	return found
}

// contentsDigest is that of the spec, zero if it is not known.
func (c *Installed) contentsDigest() (digest [sha256.Size]byte) {
	if c.spec == nil {
		return digest
	}
	return c.spec.ContentsDigest()
}

// changeOf returns what a ClusterServiceVersion of a plan changes, or why that is not known.
func (n *Namespace) changeOf(plan *olm.InstallPlan, c *Bundle) (set *change.Set, unknown string) {
	known, unknown := n.readingOf(plan)
	if unknown != "" {
		return nil, unknown
	}
	set = known.ByCSV[c.name]
	i := slices.IndexFunc(known.Replacements, func(r Replacement) bool { return r.CSV == c.name })
	if set == nil || i < 0 || c.pkg == "" {
		return nil, notRead
	}
	if set.Fault != "" {
		return nil, "its contents are not known: " + text.Truncate(text.Escape(set.Fault), maxFault)
	}
	now := n.replacementBy(c)
	if was := &known.Replacements[i]; set.From != now.From || was.From != now.From || was.FromDigest != now.FromDigest {
		return nil, "its contents were not compared with what is installed now"
	}
	if r := n.Recorded(now.From); r != nil && len(n.governing(c.pkg)) > 0 &&
		r.Digest != hex.EncodeToString(now.FromDigest[:]) {
		return nil, "what is installed has not the contents that are recorded of " + text.Name(now.From)
	}
	if set.Digest() == "" {
		return nil, "its contents have no digest"
	}
	return set, ""
}

const notRead = "its contents are not among those that were read"

// readingOf returns what was read of a plan, or why nothing is known.
func (n *Namespace) readingOf(plan *olm.InstallPlan) (known *PlanChanges, unknown string) {
	if n != nil {
		known = n.changes[keyOf(plan)]
	}
	switch {
	case known == nil:
		return nil, "its contents are not read yet"
	case known.Plan != plan.ContentsDigest():
		return nil, "the contents that were read are not those of this InstallPlan"
	}
	return known, ""
}

// unpackedOf returns what OLM unpacked of a ClusterServiceVersion that a plan refers to, or why that is not known.
func (n *Namespace) unpackedOf(c *Bundle) (bundle *UnpackedBundle, unknown string) {
	if c.plan == nil {
		return nil, "no InstallPlan brings it"
	}
	known, unknown := n.readingOf(c.plan)
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
func (c *Bundle) changes(b *constraint.Bundle, ns *Namespace) {
	b.Unknown |= constraint.ChangeSet
	if c.plan == nil || ns == nil {
		return
	}
	set, unknown := ns.changeOf(c.plan, c)
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
