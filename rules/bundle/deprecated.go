package bundle

import (
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleDeprecated is on what the catalog deprecates.
const RuleDeprecated verdict.RuleID = "bundle/deprecated"

var bundleDeprecated = verdict.Rule{ID: RuleDeprecated, Outcomes: verdict.Holds, Override: true,
	Edit:    allowDeprecated,
	Summary: "a ClusterServiceVersion of the plan, its channel or its package is deprecated, or not known not to be, and the policy's deprecated is Hold"}

func heldDeprecated(in *Input, c *carrier.Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || !p.HoldDeprecated || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	name, from, channel := text.Name(c.Name), "its catalog", "its channel"
	if len(c.Catalogs) == 1 {
		from = "catalog " + text.Name(c.Catalogs[0].Namespace) + "/" + text.Name(c.Catalogs[0].Name)
	}
	d, known := c.Deprecations(in.Namespace)
	if !known {
		return verdict.Finding{Decision: verdict.Hold,
			What: name + ", of which it is not known whether it is deprecated, is held",
			Accepted: "waits until the PackageManifest of package " + text.Name(c.Package) + " in " + from +
				" has it, or for spec.deprecated: Allow"}
	}
	if channels := in.Namespace.Channels(c.Package); len(channels) == 1 && channels[0] != "" {
		channel = "channel " + text.Name(channels[0])
	}
	var deprecated []string
	accepted := ""
	for _, part := range []struct{ what, message, accepted string }{
		{"the version", d.Version, "allowed is a version that is not deprecated, or spec.deprecated: Allow"},
		{channel, d.Channel, "allowed is a version from a channel that is not deprecated, or spec.deprecated: Allow"},
		{"package " + text.Name(c.Package), d.Package, "no version of it is allowed without spec.deprecated: Allow"},
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
