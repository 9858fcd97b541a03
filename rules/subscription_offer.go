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
	asked := askedFor(in)
	set, namespace, budget := in.Namespace.Constraints(), in.Namespace.ForConstraints(),
		constraint.NewBudget(in.Interrupt)
	spoken := map[*constraint.Constraint]bool{}
	for _, f := range set.Judge(asked, namespace, budget) {
		if f.Outcome == constraint.Undecided && (in.Subscription.Spec.Config.Fault == "" ||
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
	spec := &in.Subscription.Spec
	b := &constraint.Bundle{
		Bundle: olm.Bundle{Package: spec.Package, Channel: spec.Channel, Catalog: in.Subscription.Catalog()},
		Unknown: constraint.CSV | constraint.Version | constraint.Properties | constraint.InCSV |
			constraint.Deprecation | constraint.ChangeSet}
	b.Config = spec.Config
	if spec.Config.Fault != "" {
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
	if channel == nil || in.Subscription.Spec.StartingCSV != "" {
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
	return in.Old == nil || in.Old.Spec.Channel != in.Subscription.Spec.Channel ||
		in.Old.Catalog() != in.Subscription.Catalog()
}

func unknownChannel(in *SubscriptionInput, id verdict.RuleID, v *verdict.Verdict) {
	name := in.Subscription.Spec.Channel
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
		if installed.Package != in.Subscription.Spec.Package || !olm.OlderVersion(newest.Version, installed.Version) {
			continue
		}
		v.Add(id, verdict.Finding{Field: in.path("channel"),
			What: text.Name(newest.Name) + ", the newest version in channel " + text.Name(channel.Name) +
				", is older than " + text.Name(installed.Name) + ", which is installed",
			Accepted: "OLM never goes back, and installs nothing until the channel has a newer version"})
	}
}

func unknownStart(in *SubscriptionInput, id verdict.RuleID, v *verdict.Verdict) {
	start, channel := in.Subscription.Spec.StartingCSV, in.channel()
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
	spec, channel := &in.Subscription.Spec, in.channel()
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
	pkg := in.Subscription.Spec.Package
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
