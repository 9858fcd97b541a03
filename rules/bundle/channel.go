package bundle

import (
	"fmt"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleChannel is on the channel that a plan comes from.
const RuleChannel verdict.RuleID = "bundle/channel"

var bundleChannel = verdict.Rule{ID: RuleChannel, Outcomes: verdict.Holds, Override: true, Edit: nameChannel,
	Summary: "the Subscription behind a ClusterServiceVersion follows another channel than the policy names"}

func foreignPlanChannel(in *Input, c *carrier.Bundle, p *state.OperatorPolicy) verdict.Finding {
	if p.MustNotHave || p.Channel == "" || p.Unreadable() != "" {
		return verdict.Finding{}
	}
	for _, s := range in.Namespace.Subscribers(c.Package) {
		if s.Spec.Channel != p.Channel {
			return verdict.Finding{Decision: verdict.Hold,
				What: fmt.Sprintf("%s, from channel %s of subscription %s, is held", text.Name(c.Name),
					text.Quote(s.Spec.Channel), s.Metadata.Name),
				Accepted: "waits until it follows channel " + text.Name(p.Channel)}
		}
	}
	return verdict.Finding{}
}
