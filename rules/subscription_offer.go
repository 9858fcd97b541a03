package rules

import (
	"slices"
	"strings"
	"time"

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

// violatedConstraints judges a Subscription by the Constraints, as far as it is known before there is a plan what it
// will install.
func violatedConstraints(in *SubscriptionInput, id verdict.RuleID, v *verdict.Verdict) {
	set := in.Namespace.Constraints()
	if set.Empty() {
		return
	}
	asked, namespace, budget := askedFor(in), in.Namespace.ForConstraints(), constraint.NewBudget(in.Interrupt)
	spoken := map[*constraint.Constraint]bool{}
	for _, f := range set.Judge(asked, namespace, budget) {
		if f.Outcome == constraint.Undecided && (asked.Config.Fault == "" ||
			f.Attributes&constraint.Config == 0) {
			continue // known once there is a plan, and no config is in force before
		}
		spoken[f.Constraint] = true
		what := "package " + text.Quote(asked.Package)
		if asked.Unknown&constraint.CSV == 0 {
			what = text.Name(asked.Name)
		}
		state.RecordConstraint(v, id, what, &f)
	}
	in.judgeInstalled(spoken, budget, v)
	newest := newestOf(in, *asked)
	if newest == nil {
		return
	}
	for _, f := range set.Judge(newest, namespace, budget) {
		if f.Outcome == constraint.Violated && !spoken[f.Constraint] {
			source := state.ConstraintRef(f.Definition)
			v.Add(id, verdict.Finding{From: source, Accepted: state.MustSatisfy(&f),
				What: text.Name(newest.Name) + ", the newest version in channel " + text.Name(in.channel().Name) +
					", will not be allowed by " + source.String()})
		}
	}
	if what, accepted := in.Namespace.Facts().TooOldFor(in.channel().MinKubeVersion); what != "" {
		v.Add(bundle.RuleKubeVersion, verdict.Finding{Accepted: accepted,
			What: text.Name(newest.Name) + ", the newest version in channel " + text.Name(in.channel().Name) + ", " + what})
	}
}

// askedFor returns what is certain about the first version that a Subscription will install.
func askedFor(in *SubscriptionInput) *constraint.Bundle {
	spec := &in.New.Spec
	b := &constraint.Bundle{
		Bundle: olm.Bundle{Package: spec.Package, Channel: spec.Channel, Catalog: in.New.Catalog()},
		Unknown: constraint.CSV | constraint.Version | constraint.Properties | constraint.InCSV |
			constraint.Deprecation | constraint.ChangeSet}
	if b.Config = spec.Config.Read(); b.Config.Fault != "" {
		b.Unknown |= constraint.Config
	}
	if spec.Channel == "" {
		b.Unknown |= constraint.Channel // the catalog's default, which may change
	}
	if in.Old != nil || spec.StartingCSV == "" {
		return b
	}
	b.Name, b.Unknown = spec.StartingCSV, b.Unknown&^constraint.CSV
	if channel := in.channel(); channel != nil {
		if entry, ok := channel.Entry(spec.StartingCSV); ok && entry.Version != "" {
			b.Version, b.Unknown = entry.Version, b.Unknown&^constraint.Version
		}
	}
	return b
}

// newestOf returns what OLM will most likely install if no startingCSV is set; nil if that is not known.
func newestOf(in *SubscriptionInput, asked constraint.Bundle) *constraint.Bundle {
	channel := in.channel()
	if channel == nil || in.New.Spec.StartingCSV != "" {
		return nil
	}
	newest := channel.Entries[0]
	asked.Name, asked.Channel = newest.Name, channel.Name
	asked.Unknown &^= constraint.CSV | constraint.Channel
	if newest.Version != "" {
		asked.Version, asked.Unknown = newest.Version, asked.Unknown&^constraint.Version
	}
	return &asked
}

// moves reports whether a Subscription is new, or goes to another channel or catalog.
func (in *SubscriptionInput) moves() bool {
	return in.Old == nil || in.Old.Spec.Channel != in.New.Spec.Channel ||
		in.Old.Catalog() != in.New.Catalog()
}

func unknownChannel(in *SubscriptionInput, id verdict.RuleID, v *verdict.Verdict) {
	name := in.New.Spec.Channel
	if in.Offered == nil || len(in.Offered.Channels) == 0 || in.Offered.Channel(name) != nil || name == "" ||
		!in.moves() {
		return
	}
	var names []string
	for i := range in.Offered.Channels {
		names = append(names, in.Offered.Channels[i].Name)
	}
	v.Add(id, verdict.Finding{Field: in.path("channel"),
		What: in.path("channel") + " " + text.Quote(name) + " is not a channel of package " +
			text.Name(in.Offered.Name) + " in " + facts.CatalogName(in.Offered.Catalog),
		Accepted: "it has " + text.Names(names, verdict.MaxListed)})
}

func olderChannel(in *SubscriptionInput, id verdict.RuleID, v *verdict.Verdict) {
	channel := in.channel()
	if channel == nil || !in.moves() {
		return
	}
	newest := channel.Entries[0]
	for _, installed := range in.Namespace.Installed() {
		if installed.Package != in.New.Spec.Package || !olm.OlderVersion(newest.Version, installed.Version) {
			continue
		}
		v.Add(id, verdict.Finding{Field: in.path("channel"),
			What: text.Name(newest.Name) + ", the newest version in channel " + text.Name(channel.Name) +
				", is older than " + text.Name(installed.Name) + ", which is installed",
			Accepted: "OLM never goes back, and installs nothing until the channel has a newer version"})
	}
}

func unknownStart(in *SubscriptionInput, id verdict.RuleID, v *verdict.Verdict) {
	start, channel := in.New.Spec.StartingCSV, in.channel()
	if channel == nil || start == "" || in.Old != nil && in.Old.Spec.StartingCSV == start {
		return
	}
	if _, ok := channel.Entry(start); ok {
		return
	}
	v.Add(id, verdict.Finding{Field: in.path("startingCSV"),
		What: in.path("startingCSV") + " " + text.Quote(start) + " is not in channel " + text.Name(channel.Name) +
			" of " + facts.CatalogName(in.Offered.Catalog),
		Accepted: "it has " + entriesText(channel.Entries)})
}

// entriesText names versions of a channel.
func entriesText(entries []catalog.Entry) string {
	return text.Names(entryNames(entries), verdict.MaxListed)
}

// newestRefused warns of a first installation of the newest version where the policies allow others only.
func newestRefused(in *SubscriptionInput, id verdict.RuleID, v *verdict.Verdict) {
	spec, channel := &in.New.Spec, in.channel()
	if channel == nil || spec.StartingCSV != "" || !in.moves() || in.Namespace.InstalledOf(spec.Package, "") != "" {
		return
	}
	for _, p := range in.Namespace.Governing(spec.Package) {
		newest := channel.Entries[0]
		if p.Enforced && !p.MustNotHave && len(offeredVersions(p, channel, in.Now)) > 0 &&
			!coversEntry(p, newest, in.Now) {
			v.Add(id, verdict.Finding{Field: in.path("startingCSV"), From: p.Ref(),
				What: text.Name(newest.Name) + ", the newest version in channel " + text.Name(channel.Name) +
					", will not be allowed by " + p.Source(),
				Accepted: "a Subscription without spec.startingCSV asks for it; write one that is allowed: " +
					text.Names(offeredVersions(p, channel, in.Now), verdict.MaxListed)})
		}
	}
}

// coversEntry reports whether a policy may allow a version that a catalog offers.
func coversEntry(p *operatorpolicy.Policy, e catalog.Entry, now time.Time) bool {
	ok, _ := bundle.Covers(p, e.Name, e.Version, now)
	return ok || e.Version == "" && p.VersionRange != nil
}

// offeredVersions returns the names of the versions of a channel that a policy allows, newest first.
func offeredVersions(p *operatorpolicy.Policy, channel *catalog.Channel, now time.Time) []string {
	var names []string
	for _, e := range channel.Entries {
		if coversEntry(p, e, now) {
			names = append(names, e.Name)
		}
	}
	return names
}

// heldPlans warns of a first installation beside a plan that is held: the next plan has both, and is held as well.
func heldPlans(in *SubscriptionInput, id verdict.RuleID, v *verdict.Verdict) {
	pkg := in.New.Spec.Package
	if in.Old != nil || in.ByOLM || in.Namespace.InstalledOf(pkg, "") != "" {
		return
	}
	for _, plan := range in.Namespace.Plans() {
		if !in.Namespace.Waits(plan) {
			continue
		}
		judged := JudgePlan(PlanInput{Plan: plan, Namespace: in.Namespace, Now: in.Now, Interrupt: in.Interrupt})
		ours := func(c verdict.CSV) bool { return c.Package == pkg }
		if judged.Decision == verdict.Allow || slices.ContainsFunc(judged.CSVs, ours) {
			continue
		}
		v.Add(id, verdict.Finding{Field: in.path("name"),
			What: pendingText(&judged) + " is held, and OLM puts package " + text.Quote(pkg) + " into one plan with it",
			Accepted: judged.Reasons[0].Message +
				"; the package is not installed in this namespace until that is resolved"})
	}
}

// pendingText names a plan that waits, and what is in it.
func pendingText(v *verdict.Verdict) string {
	var names []string
	for _, c := range v.CSVs {
		names = append(names, text.Name(c.CSV))
	}
	return "pending " + v.Object + " (" + strings.Join(names, ", ") + ")"
}

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
		facts.CatalogName(o.Package.Catalog) + " is allowed; the channel has " + entriesText(entries)
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
		within := p.NamesStart(e.Name) || inRange(p, e.Version)
		if !p.MayBring(e.Name) || !within || p.HoldDeprecated && e.Deprecation != "" {
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
			func(f constraint.Result) bool { return f.Outcome == constraint.Violated })
	}
}

func entryNames(entries []catalog.Entry) []string {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name
	}
	return names
}
