package rules

import (
	"slices"
	"strings"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleBundleDeprecated is on what the catalog deprecates.
const RuleBundleDeprecated verdict.RuleID = "bundle/deprecated"

var bundleDeprecated = verdict.Rule{ID: RuleBundleDeprecated, Outcomes: verdict.Holds, Override: true,
	Edit:    allowDeprecated,
	Summary: "a ClusterServiceVersion of the plan, its channel or its package is deprecated, or not known not to be, and the policy's deprecated is Hold"}

// readPackages returns the packages of unfinished plans, if a policy or a Constraint judges by deprecations; nil if
// none does. The package server may be slow or absent, so that they are read before a request is judged.
func readPackages(n *state.Namespace, from state.Packages) map[state.PackageKey]*catalog.Package {
	holds := func(p *state.OperatorPolicy) bool { return p.HoldDeprecated }
	if from == nil || len(n.Plans()) == 0 {
		return nil
	}
	all := n.Constraints().Reads(constraint.Deprecation)
	if !all && !slices.ContainsFunc(n.Policies(), holds) {
		return nil
	}
	packages := map[state.PackageKey]*catalog.Package{}
	for _, plan := range n.Plans() {
		if plan.Finished() {
			continue
		}
		for _, c := range bundlesOf(plan, n) {
			if len(c.catalogs) == 1 && c.pkg != "" && (all || slices.ContainsFunc(n.Governing(c.pkg), holds)) {
				packages[state.PackageKey{Name: c.pkg, Source: c.catalogs[0]}] = from(c.pkg, c.name, c.catalogs[0])
			}
		}
	}
	return packages
}

// deprecations returns what the catalog deprecates of a ClusterServiceVersion of a plan; known is false if that is not
// known (yet). The conditions of Subscriptions do not tell: they are about what is installed.
func (c *Bundle) deprecations(ns *state.Namespace) (d olm.Deprecations, known bool) {
	if ns == nil || c.pkg == "" || len(c.catalogs) != 1 {
		return d, false
	}
	return ns.PackageOf(c.pkg, c.catalogs[0]).Deprecations(c.name, ns.Channels(c.pkg))
}

func heldDeprecated(in *PlanInput, c *Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || !p.HoldDeprecated || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	name, from, channel := text.Name(c.name), "its catalog", "its channel"
	if len(c.catalogs) == 1 {
		from = "catalog " + text.Name(c.catalogs[0].Namespace) + "/" + text.Name(c.catalogs[0].Name)
	}
	d, known := c.deprecations(in.Namespace)
	if !known {
		return verdict.Finding{Decision: verdict.Hold,
			What: name + ", of which it is not known whether it is deprecated, is held",
			Accepted: "waits until the PackageManifest of package " + text.Name(c.pkg) + " in " + from +
				" has it, or for spec.deprecated: Allow"}
	}
	if channels := in.Namespace.Channels(c.pkg); len(channels) == 1 && channels[0] != "" {
		channel = "channel " + text.Name(channels[0])
	}
	var deprecated []string
	accepted := ""
	for _, part := range []struct{ what, message, accepted string }{
		{"the version", d.Version, "allowed is a version that is not deprecated, or spec.deprecated: Allow"},
		{channel, d.Channel, "allowed is a version from a channel that is not deprecated, or spec.deprecated: Allow"},
		{"package " + text.Name(c.pkg), d.Package, "no version of it is allowed without spec.deprecated: Allow"},
	} {
		if part.message != "" {
			deprecated, accepted = append(deprecated, part.what+" is deprecated ("+text.Quote(part.message)+")"),
				part.accepted
		}
	}
	if len(deprecated) == 0 {
		return verdict.Finding{}
	}
	return verdict.Finding{Decision: verdict.Hold, What: name + " is held",
		Accepted: strings.Join(deprecated, " and ") + " in " + from + "; " + accepted}
}
