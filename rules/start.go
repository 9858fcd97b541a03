package rules

import (
	"slices"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// Offered is what a catalog offers to a policy in a channel.
type Offered struct {
	Namespace *state.Namespace
	Policy    *operatorpolicy.Policy
	// Package is nil if it is not known. Channel is the default one if it is empty.
	Package *catalog.Package
	Channel string
	// InstalledCSV is status.installedCSV of the Subscription.
	InstalledCSV string
}

// StartingCSV returns the spec.startingCSV with which OLM plans a version that is allowed: the newest of the channel
// that the policy and the Constraints allow, or the one that was installed before, if that is newer. It returns "" if
// OLM needs none, since every version is allowed or one is installed, and if there is none: a version that was lost is
// not replaced by an older one. OLM reads the field only while status.installedCSV names nothing installed.
func (o *Offered) StartingCSV() string {
	if o.Namespace.Installs(o.InstalledCSV) {
		return ""
	}
	allows := o.judge()
	for i, entry := range o.entries() {
		if entry.Name != o.InstalledCSV && !allows(entry) {
			continue
		}
		start := entry.Name
		for _, before := range o.Namespace.Record().All() {
			if before.Package == o.Policy.Package && olm.OlderVersion(entry.Version, before.Version) {
				start = before.CSV
			}
		}
		if !o.Policy.MayBring(start) || i == 0 && !o.Policy.RestrictsVersions() {
			return "" // what OLM plans is held, rather than an older version installed; or the newest one is allowed
		}
		return start
	}
	return ""
}

// NoneAllowed returns, as a sentence, that no version of the channel is allowed; "" if one is, if something is
// installed, and if the channel is not known.
func (o *Offered) NoneAllowed() string {
	entries := o.entries()
	if len(entries) == 0 || o.Namespace.Installs(o.InstalledCSV) || slices.ContainsFunc(entries, o.judge()) {
		return ""
	}
	return "no version in channel " + text.Name(o.Package.Channel(o.Channel).Name) + " of " +
		facts.CatalogName(o.Package.Catalog) +
		" is allowed; the channel has " + entriesText(entries)
}

// NextStep returns, as a sentence, which allowed versions of the channel an upgrade that is not allowed keeps from
// being reached. OLM always goes to the first version, from the newest, that replaces or skips the installed one: older
// ones are passed over, newer ones come after it. It returns "" if that version is allowed, so that something else
// holds it, and if the channel does not have both.
func (o *Offered) NextStep(next string) string {
	entries, allows := o.entries(), o.judge()
	position := func(csv string) int {
		return slices.IndexFunc(entries, func(e catalog.Entry) bool { return e.Name == csv })
	}
	step, installed := position(next), position(o.InstalledCSV)
	if step < 0 || installed < step || !o.Namespace.Installs(o.InstalledCSV) || allows(entries[step]) {
		return ""
	}
	refused := func(e catalog.Entry) bool { return !allows(e) }
	after := entryNames(slices.DeleteFunc(slices.Clone(entries[:step]), refused))
	passed := entryNames(slices.DeleteFunc(slices.Clone(entries[step+1:installed]), refused))
	message := "in channel " + text.Name(o.Package.Channel(o.Channel).Name) + " OLM goes from " +
		text.Name(o.InstalledCSV) + " to " + text.Name(next)
	if len(passed) > 0 {
		message += " and skips " + text.Names(passed, verdict.MaxListed)
	}
	if len(after) > 0 {
		return message + "; allowed and reached only through it: " + text.Names(after, verdict.MaxListed)
	}
	return message + "; no allowed version is reachable until another one is allowed or the channel changes"
}

// entries returns the versions of the channel, newest first; none if the policy does not say which it wants.
func (o *Offered) entries() []catalog.Entry {
	channel := o.Package.Channel(o.Channel)
	if channel == nil || o.Policy.MustNotHave || o.Policy.Unreadable() != "" {
		return nil
	}
	return channel.Entries
}

// judge returns a function that reports whether the policy and the Constraints allow a version, as far as the catalog
// describes it.
func (o *Offered) judge() func(catalog.Entry) bool {
	p, budget := o.Policy, constraint.NewBudget(nil)
	return func(e catalog.Entry) bool {
		inRange := bundle.InRange(p, e.Name, e.Version)
		if !p.MayBring(e.Name) || !inRange || p.HoldDeprecated && e.Deprecation != "" {
			return false
		}
		b := &constraint.Bundle{Bundle: olm.Bundle{Package: p.Package, Name: e.Name, Version: e.Version,
			Catalog: o.Package.Catalog, Channel: o.Package.Channel(o.Channel).Name},
			Unknown: constraint.Properties | constraint.InCSV | constraint.Deprecation | constraint.ChangeSet |
				constraint.Config}
		if e.Version == "" {
			b.Unknown |= constraint.Version
		}
		findings := o.Namespace.Constraints().Judge(b, o.Namespace.ForConstraints(), budget)
		return !slices.ContainsFunc(findings,
			func(f constraint.Finding) bool { return f.Outcome == constraint.Violated })
	}
}

func entryNames(entries []catalog.Entry) []string {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name
	}
	return names
}
