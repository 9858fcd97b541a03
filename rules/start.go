package rules

import (
	"slices"

	"github.com/blang/semver/v4"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/constraint"
)

// PolicyFieldsAnnotation, on a Subscription that a policy created, lists the optional fields of its spec that Opgate wrote. A field of the list
// that is not wanted any more is removed. A Subscription without it belongs to its users.
const PolicyFieldsAnnotation = "opgate.io/policy-fields"

// StartingCSV returns the spec.startingCSV with which OLM plans a version that is allowed: the newest of the channel that the policy and the
// Constraints allow, or the one that was installed before, if that is newer. It returns "" if OLM needs none, since every version is allowed or
// one is installed, and if there is none: a version that was lost is not replaced by an older one. OLM reads the field only while
// status.installedCSV names nothing installed (R-LP-12).
func (n *Namespace) StartingCSV(p *OperatorPolicy, pkg *catalog.Package, channel, installedCSV string) string {
	offered := pkg.Channel(channel)
	if offered == nil || p.MustNotHave || p.faults != "" || n.installs(installedCSV) {
		return ""
	}
	budget := constraint.NewBudget(nil)
	for i, entry := range offered.Entries {
		if entry.Name != installedCSV && !n.allowsEntry(p, pkg, offered, entry, budget) {
			continue
		}
		start := entry.Name
		for _, o := range n.Record().operators() {
			if o.Package == p.Package && newer(o.Version, entry.Version) {
				start = o.CSV
			}
		}
		if !p.mayBring(start) || i == 0 && !p.restrictsVersions() {
			return "" // what OLM plans is held, rather than an older version installed; or the newest one is allowed
		}
		return start
	}
	return ""
}

// NoneAllowed returns, as a sentence, that a policy and the Constraints allow no version of a channel; "" if one is allowed, something is
// installed, or the channel is not known.
func (n *Namespace) NoneAllowed(p *OperatorPolicy, pkg *catalog.Package, channel, installedCSV string) string {
	offered := pkg.Channel(channel)
	if offered == nil || p.MustNotHave || p.faults != "" || n.installs(installedCSV) {
		return ""
	}
	budget := constraint.NewBudget(nil)
	names := make([]string, len(offered.Entries))
	for i, entry := range offered.Entries {
		if n.allowsEntry(p, pkg, offered, entry, budget) {
			return ""
		}
		names[i] = entry.Name
	}
	return "no version in channel " + text.Name(offered.Name) + " of catalog " + text.Name(pkg.Catalog.Namespace) + "/" + text.Name(pkg.Catalog.Name) +
		" is allowed; the channel has " + text.Names(names, maxListed)
}

// installs reports whether a ClusterServiceVersion is installed in the namespace; what only a Subscription shows is not.
func (n *Namespace) installs(csv string) bool {
	return csv != "" && slices.ContainsFunc(n.Installed(), func(c Installed) bool { return c.CSV == csv && c.spec != nil })
}

// newer reports whether a version is newer than another; false for what is not a version.
func newer(version, than string) bool {
	a, err := semver.ParseTolerant(version)
	if err != nil {
		return false
	}
	b, err := semver.ParseTolerant(than)
	return err == nil && a.GT(b)
}

// allowsEntry reports whether a policy and the Constraints allow a version of a channel, as far as the catalog describes it.
func (n *Namespace) allowsEntry(p *OperatorPolicy, pkg *catalog.Package, channel *catalog.Channel, entry catalog.Entry, budget *constraint.Budget) bool {
	if !p.mayBring(entry.Name) || !outOfRangeCSV(&planCSV{name: entry.Name, version: entry.Version}, p).silent() || p.HoldDeprecated && entry.Deprecation != "" {
		return false
	}
	b := &constraint.Bundle{Package: p.Package, CSV: entry.Name, Version: entry.Version, Channel: channel.Name, Catalog: pkg.Catalog,
		Unknown: constraint.Properties | constraint.InCSV | constraint.Deprecation | constraint.ChangeSet}
	if entry.Version == "" {
		b.Unknown |= constraint.Version
	}
	return !slices.ContainsFunc(n.Constraints().Judge(b, n.ForConstraints(), budget), func(f constraint.Finding) bool { return f.Outcome == constraint.Violated })
}

// NextStep returns, as a sentence, which allowed versions of the channel an upgrade that is not allowed keeps from being reached. OLM always goes
// to the first version, from the newest, that replaces or skips the installed one: older ones are passed over, newer ones come after it. It
// returns "" if that version is allowed, so that something else holds it, and if the channel does not have both.
func (n *Namespace) NextStep(p *OperatorPolicy, pkg *catalog.Package, channel, installedCSV, next string) string {
	offered := pkg.Channel(channel)
	if offered == nil || !n.installs(installedCSV) || p.MustNotHave || p.faults != "" {
		return ""
	}
	position := func(csv string) int {
		return slices.IndexFunc(offered.Entries, func(e catalog.Entry) bool { return e.Name == csv })
	}
	step, installed := position(next), position(installedCSV)
	budget := constraint.NewBudget(nil)
	if step < 0 || installed < step || n.allowsEntry(p, pkg, offered, offered.Entries[step], budget) {
		return ""
	}
	allowed := func(entries []catalog.Entry) (names []string) {
		for _, entry := range entries {
			if n.allowsEntry(p, pkg, offered, entry, budget) {
				names = append(names, entry.Name)
			}
		}
		return names
	}
	after, passed := allowed(offered.Entries[:step]), allowed(offered.Entries[step+1:installed])
	message := "in channel " + text.Name(offered.Name) + " OLM goes from " + text.Name(installedCSV) + " to " + text.Name(next)
	if len(passed) > 0 {
		message += " and passes over " + text.Names(passed, maxListed)
	}
	if len(after) > 0 {
		return message + "; allowed and reached only through it: " + text.Names(after, maxListed)
	}
	return message + "; no allowed version is reachable until another one is allowed or the channel changes"
}
