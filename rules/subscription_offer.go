package rules

import (
	"github.com/blang/semver/v4"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/constraint"
)

// The rules on what the catalog offers a Subscription.
const (
	RuleSubscriptionConstraint   RuleID = "subscription/constraint"
	RuleSubscriptionUnknownCSV   RuleID = "subscription/unknown-csv"
	RuleSubscriptionOlderChannel RuleID = "subscription/older-channel"
)

var (
	subscriptionConstraint = Rule{RuleSubscriptionConstraint, OutcomeDeny,
		"what a Subscription asks for does not satisfy a Constraint, or (Warn) what it will most likely bring will not"}
	subscriptionUnknownCSV = Rule{RuleSubscriptionUnknownCSV, OutcomeWarn,
		"the catalog does not offer spec.startingCSV in the channel, so OLM would wait for it without an error"}
	subscriptionOlderChannel = Rule{RuleSubscriptionOlderChannel, OutcomeWarn,
		"the newest version in the channel is older than the installed one, and OLM never goes back"}
)

// judgeChannel judges a Subscription by the Constraints, as far as it is known before there is a plan what it will install. What is certain
// is refused; what is likely is warned of, and judged again on the plan.
func judgeChannel(in *SubscriptionInput, v *Verdict) {
	asked := askedFor(in)
	set, namespace, budget := in.Namespace.Constraints(), in.Namespace.ForConstraints(), constraint.NewBudget(in.Interrupt)
	spoken := map[*constraint.Constraint]bool{}
	for _, f := range set.Judge(asked, namespace, budget) {
		if f.Outcome == constraint.Undecided {
			continue // known once there is a plan
		}
		spoken[f.Constraint] = true
		what := "package " + text.Quote(asked.Package)
		if asked.Unknown&constraint.CSV == 0 {
			what = text.Name(asked.CSV)
		}
		v.recordConstraint(RuleSubscriptionConstraint, what, &f)
	}
	judgeStart(in, v)
	judgeOlder(in, v)
	newest := newestOf(in, *asked)
	if newest == nil {
		return
	}
	for _, f := range set.Judge(newest, namespace, budget) {
		if f.Outcome == constraint.Violated && !spoken[f.Constraint] {
			v.warn(Reason{Rule: RuleSubscriptionConstraint, Source: constraintRef(f.Definition).String(), Message: sentence(
				text.Name(newest.CSV)+", the newest version in channel "+text.Name(in.Channel.Name)+", will not be allowed by "+constraintRef(f.Definition).String(),
				RuleSubscriptionConstraint, mustSatisfy(&f))})
		}
	}
	if what, accepted := tooOldFor(in.Channel.MinKubeVersion, set.Cluster().Version); what != "" {
		v.warn(Reason{Rule: RulePlanKubeVersion, Message: sentence(
			text.Name(newest.CSV)+", the newest version in channel "+text.Name(in.Channel.Name)+", "+what, RulePlanKubeVersion, accepted)})
	}
}

// askedFor returns what is certain about the first version that a Subscription will install.
func askedFor(in *SubscriptionInput) *constraint.Bundle {
	spec := &in.Subscription.Spec
	b := &constraint.Bundle{Package: spec.Package, Channel: spec.Channel, Catalog: in.Subscription.Catalog(),
		Unknown: constraint.CSV | constraint.Version | constraint.Properties | constraint.InCSV | constraint.Deprecation | constraint.ChangeSet}
	if spec.Channel == "" {
		b.Unknown |= constraint.Channel // the catalog's default, which may change
	}
	if in.Old != nil || spec.StartingCSV == "" {
		return b
	}
	b.CSV, b.Unknown = spec.StartingCSV, b.Unknown&^constraint.CSV
	if in.Channel != nil {
		if entry, ok := in.Channel.Entry(spec.StartingCSV); ok && entry.Version != "" {
			b.Version, b.Unknown = entry.Version, b.Unknown&^constraint.Version
		}
	}
	return b
}

// newestOf returns what OLM will most likely install if no startingCSV is set; nil if that is not known.
func newestOf(in *SubscriptionInput, asked constraint.Bundle) *constraint.Bundle {
	if in.Channel == nil || len(in.Channel.Entries) == 0 || in.Subscription.Spec.StartingCSV != "" {
		return nil
	}
	newest := in.Channel.Entries[0]
	asked.CSV, asked.Channel = newest.Name, in.Channel.Name
	asked.Unknown &^= constraint.CSV | constraint.Channel
	if newest.Version != "" {
		asked.Version, asked.Unknown = newest.Version, asked.Unknown&^constraint.Version
	}
	return &asked
}

// judgeOlder warns of a change to a channel that is behind what is installed: OLM would wait there without an error (R-OP-16).
func judgeOlder(in *SubscriptionInput, v *Verdict) {
	sub := in.Subscription
	if in.Channel == nil || len(in.Channel.Entries) == 0 || in.Old != nil && in.Old.Spec.Channel == sub.Spec.Channel && in.Old.Catalog() == sub.Catalog() {
		return
	}
	newest := in.Channel.Entries[0]
	offered, err := semver.ParseTolerant(newest.Version)
	if err != nil {
		return
	}
	for _, installed := range in.Namespace.Installed() {
		runs, err := semver.ParseTolerant(installed.Version)
		if err != nil || installed.Package != sub.Spec.Package || !offered.LT(runs) {
			continue
		}
		v.warn(Reason{Rule: RuleSubscriptionOlderChannel, Field: "spec.channel", Message: sentence(
			text.Name(newest.Name)+", the newest version in channel "+text.Name(in.Channel.Name)+", is older than "+text.Name(installed.CSV)+", which is installed",
			RuleSubscriptionOlderChannel, "OLM never goes back, and installs nothing before the channel has a newer version")})
	}
}

// judgeStart warns of a startingCSV that the channel does not contain: OLM would wait for it without an error.
func judgeStart(in *SubscriptionInput, v *Verdict) {
	start := in.Subscription.Spec.StartingCSV
	if in.Channel == nil || len(in.Channel.Entries) == 0 || start == "" || in.Old != nil && in.Old.Spec.StartingCSV == start {
		return
	}
	if _, ok := in.Channel.Entry(start); ok {
		return
	}
	names := make([]string, len(in.Channel.Entries))
	for i, e := range in.Channel.Entries {
		names[i] = e.Name
	}
	catalog := in.Subscription.Catalog()
	v.warn(Reason{Rule: RuleSubscriptionUnknownCSV, Field: "spec.startingCSV", Message: sentence(
		"spec.startingCSV "+text.Quote(start)+" is not in channel "+text.Name(in.Channel.Name)+" of catalog "+text.Name(catalog.Namespace)+"/"+text.Name(catalog.Name),
		RuleSubscriptionUnknownCSV, "it has "+text.Names(names, maxListed))})
}
