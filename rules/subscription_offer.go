package rules

import (
	"time"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on what the catalog offers a Subscription.
const (
	RuleSubscriptionConstraint   verdict.RuleID = "subscription/constraint"
	RuleSubscriptionUnknownCSV   verdict.RuleID = "subscription/unknown-csv"
	RuleSubscriptionOlderChannel verdict.RuleID = "subscription/older-channel"
	// RuleSubscriptionUnknownChannel is on a channel that the package does not have.
	RuleSubscriptionUnknownChannel verdict.RuleID = "subscription/unknown-channel"
)

var (
	subscriptionConstraint = verdict.Rule{ID: RuleSubscriptionConstraint, Outcomes: verdict.DeniesOrWarns,
		Summary: "what a Subscription asks for does not satisfy a Constraint, or what it will most likely bring will not"}
	subscriptionUnknownCSV = verdict.Rule{ID: RuleSubscriptionUnknownCSV, Outcomes: verdict.Warns,
		Summary: "the catalog does not offer spec.startingCSV in the channel, so OLM would wait for it without an error"}
	subscriptionOlderChannel = verdict.Rule{ID: RuleSubscriptionOlderChannel, Outcomes: verdict.Warns,
		Summary: "the newest version in the channel is older than the installed one, and OLM never goes back"}
	subscriptionUnknownChannel = verdict.Rule{ID: RuleSubscriptionUnknownChannel, Outcomes: verdict.Warns,
		Summary: "the package has no channel spec.channel in the catalog, so OLM would wait for it without an error"}
)

// judgeChannel judges a Subscription by the Constraints, as far as it is known before there is a plan what it will
// install. What is certain is refused; what is likely is warned of, and judged again on the plan.
func judgeChannel(in *SubscriptionInput, v *verdict.Verdict) {
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
			what = text.Name(asked.CSV)
		}
		state.RecordConstraint(v, RuleSubscriptionConstraint, what, &f)
	}
	in.judgeInstalled(spoken, budget, v)
	judgeOffer(in, v)
	newest := newestOf(in, *asked)
	if newest == nil {
		return
	}
	for _, f := range set.Judge(newest, namespace, budget) {
		if f.Outcome == constraint.Violated && !spoken[f.Constraint] {
			v.Warn(verdict.Reason{Rule: RuleSubscriptionConstraint, Source: state.ConstraintRef(f.Definition).String(),
				Message: verdict.Sentence(
					text.Name(newest.CSV)+", the newest version in channel "+text.Name(in.channel().Name)+
						", will not be allowed by "+state.ConstraintRef(f.Definition).String(),
					RuleSubscriptionConstraint, state.MustSatisfy(&f))})
		}
	}
	if what, accepted := in.Namespace.Facts().TooOldFor(in.channel().MinKubeVersion); what != "" {
		v.Warn(verdict.Reason{Rule: bundle.RuleKubeVersion, Message: verdict.Sentence(
			text.Name(newest.CSV)+", the newest version in channel "+text.Name(in.channel().Name)+", "+what,
			bundle.RuleKubeVersion, accepted)})
	}
}

// askedFor returns what is certain about the first version that a Subscription will install.
func askedFor(in *SubscriptionInput) *constraint.Bundle {
	spec := &in.Subscription.Spec
	b := &constraint.Bundle{Package: spec.Package, Channel: spec.Channel, Catalog: in.Subscription.Catalog(),
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
	b.CSV, b.Unknown = spec.StartingCSV, b.Unknown&^constraint.CSV
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
	asked.CSV, asked.Channel = newest.Name, channel.Name
	asked.Unknown &^= constraint.CSV | constraint.Channel
	if newest.Version != "" {
		asked.Version, asked.Unknown = newest.Version, asked.Unknown&^constraint.Version
	}
	return &asked
}

// judgeOffer warns of what the catalog does not offer: OLM would wait for it without an error (R-OP-16).
func judgeOffer(in *SubscriptionInput, v *verdict.Verdict) {
	judgeUnknownChannel(in, v)
	judgeStart(in, v)
	judgeOlder(in, v)
	judgeNewest(in, v)
}

// moves reports whether a Subscription is new, or goes to another channel or catalog.
func (in *SubscriptionInput) moves() bool {
	return in.Old == nil || in.Old.Spec.Channel != in.Subscription.Spec.Channel ||
		in.Old.Catalog() != in.Subscription.Catalog()
}

// judgeUnknownChannel warns of a channel that the package does not have.
func judgeUnknownChannel(in *SubscriptionInput, v *verdict.Verdict) {
	name := in.Subscription.Spec.Channel
	if in.Offered == nil || len(in.Offered.Channels) == 0 || in.Offered.Channel(name) != nil || name == "" ||
		!in.moves() {
		return
	}
	var names []string
	for i := range in.Offered.Channels {
		names = append(names, in.Offered.Channels[i].Name)
	}
	v.Warn(verdict.Reason{Rule: RuleSubscriptionUnknownChannel, Field: in.path("channel"), Message: verdict.Sentence(
		in.path("channel")+" "+text.Quote(name)+" is not a channel of package "+text.Name(in.Offered.Name)+" in "+
			facts.CatalogName(in.Offered.Catalog),
		RuleSubscriptionUnknownChannel, "it has "+text.Names(names, verdict.MaxListed))})
}

// judgeOlder warns of a change to a channel that is behind what is installed: OLM never goes back.
func judgeOlder(in *SubscriptionInput, v *verdict.Verdict) {
	channel := in.channel()
	if channel == nil || !in.moves() {
		return
	}
	newest := channel.Entries[0]
	for _, installed := range in.Namespace.Installed() {
		if installed.Package != in.Subscription.Spec.Package || !olm.OlderVersion(newest.Version, installed.Version) {
			continue
		}
		v.Warn(verdict.Reason{Rule: RuleSubscriptionOlderChannel, Field: in.path("channel"), Message: verdict.Sentence(
			text.Name(newest.Name)+", the newest version in channel "+text.Name(channel.Name)+", is older than "+
				text.Name(installed.CSV)+", which is installed",
			RuleSubscriptionOlderChannel,
			"OLM never goes back, and installs nothing before the channel has a newer version")})
	}
}

// judgeStart warns of a startingCSV that the channel does not contain.
func judgeStart(in *SubscriptionInput, v *verdict.Verdict) {
	start, channel := in.Subscription.Spec.StartingCSV, in.channel()
	if channel == nil || start == "" || in.Old != nil && in.Old.Spec.StartingCSV == start {
		return
	}
	if _, ok := channel.Entry(start); ok {
		return
	}
	v.Warn(verdict.Reason{Rule: RuleSubscriptionUnknownCSV, Field: in.path("startingCSV"), Message: verdict.Sentence(
		in.path("startingCSV")+" "+text.Quote(start)+" is not in channel "+text.Name(channel.Name)+" of "+
			facts.CatalogName(in.Offered.Catalog),
		RuleSubscriptionUnknownCSV, "it has "+entriesText(channel))})
}

// entriesText names the versions of a channel.
func entriesText(channel *catalog.Channel) string {
	names := make([]string, len(channel.Entries))
	for i, e := range channel.Entries {
		names[i] = e.Name
	}
	return text.Names(names, verdict.MaxListed)
}

// judgeNewest warns of a first installation of the newest version where the policies allow others only.
func judgeNewest(in *SubscriptionInput, v *verdict.Verdict) {
	spec, channel := &in.Subscription.Spec, in.channel()
	if channel == nil || spec.StartingCSV != "" || !in.moves() || in.Namespace.InstalledOf(spec.Package, "") != "" {
		return
	}
	for _, p := range in.Namespace.Governing(spec.Package) {
		newest := channel.Entries[0]
		if p.Enforced && !p.MustNotHave && len(offeredVersions(p, channel, in.Now)) > 0 &&
			!coversEntry(p, newest, in.Now) {
			v.Warn(verdict.Reason{Rule: RuleSubscriptionStartingCSV, Source: p.Source(), Field: in.path("startingCSV"),
				Message: verdict.Sentence(
					text.Name(newest.Name)+", the newest version in channel "+text.Name(channel.Name)+
						", will not be allowed by "+p.Source(),
					RuleSubscriptionStartingCSV,
					"a Subscription without spec.startingCSV asks for it; write one that is allowed: "+
						text.Names(offeredVersions(p, channel, in.Now), verdict.MaxListed))})
		}
	}
}

// coversEntry reports whether a policy may allow a version that a catalog offers.
func coversEntry(p *state.OperatorPolicy, e catalog.Entry, now time.Time) bool {
	ok, _ := bundle.Covers(p, e.Name, e.Version, now)
	return ok || e.Version == "" && p.VersionRange != nil
}

// offeredVersions returns the names of the versions of a channel that a policy allows, newest first.
func offeredVersions(p *state.OperatorPolicy, channel *catalog.Channel, now time.Time) []string {
	var names []string
	for _, e := range channel.Entries {
		if coversEntry(p, e, now) {
			names = append(names, e.Name)
		}
	}
	return names
}
