package rules

import (
	"cmp"
	"slices"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// previewSubscription warns of what OLM will not do for the Subscription that a policy asks for, in the words that this
// would get.
func previewSubscription(in *OperatorPolicyInput, p *state.OperatorPolicy, ns *state.Namespace, v *verdict.Verdict) {
	if p.MustNotHave {
		return
	}
	sub := &olm.Subscription{}
	sub.Metadata.Namespace, sub.Metadata.Name = p.TargetNamespace, p.Package
	sub.Spec = olm.SubscriptionSpec{Package: p.Package, Channel: p.Channel, StartingCSV: p.StartingCSV,
		Source: p.Catalog.Name, SourceNamespace: p.Catalog.Namespace}
	subscribers := ns.Subscribers(p.Package)
	if len(subscribers) == 1 {
		spec := &subscribers[0].Spec
		sub.Spec.Channel, sub.Spec.Source = cmp.Or(sub.Spec.Channel, spec.Channel), cmp.Or(sub.Spec.Source, spec.Source)
		sub.Spec.SourceNamespace = cmp.Or(sub.Spec.SourceNamespace, spec.SourceNamespace)
	}
	s := SubscriptionInput{Subscription: sub, Namespace: ns, Now: in.Now, policy: true}
	if in.Package != nil {
		s.Offered = in.Package(p.Package, sub.Catalog())
	}
	judgeUnknownChannel(&s, v)
	judgeStart(&s, v)
	judgeOlder(&s, v)
	previewOffer(&s, p, v)
	switch mayhave := in.Policy.Spec.ComplianceType == policyv1beta2.MayHave; {
	case len(subscribers) > 0:
	case mayhave:
		judgeNewest(&s, v)
	default: // the policy makes a Subscription, and sets startingCSV
		s.InstalledElsewhere = in.Copied != nil && in.Copied(p.Package, p.TargetNamespace) && targets(in.Policy)
		judgeOwnerConflict(&s, v)
		judgeHeldPlans(&s, v)
	}
}

// targets reports whether the OperatorGroup of a policy is for some namespaces: only then is an operator that serves
// all of them installed again.
func targets(op *policyv1beta2.OperatorPolicy) bool {
	group := op.Spec.OperatorGroup
	return group != nil && (group.TargetNamespaces != nil || group.Selector != nil || group.Target != nil)
}

// previewOffer warns of a policy that allows nothing that OLM can install from the channel.
func previewOffer(in *SubscriptionInput, p *state.OperatorPolicy, v *verdict.Verdict) {
	channel := in.channel()
	if channel == nil || !p.RestrictsVersions() {
		return
	}
	where := "channel " + text.Name(channel.Name) + " of " + facts.CatalogName(in.Offered.Catalog)
	warn := func(what, more string) {
		v.Warn(verdict.Reason{Rule: RuleOperatorPolicyIneffective, Message: verdict.Sentence(what,
			RuleOperatorPolicyIneffective, more)})
	}
	if len(offeredVersions(p, channel, in.Now)) == 0 {
		warn("no version in "+where+" is allowed", p.Acceptance()+"; the channel has "+entriesText(channel))
		return
	}
	for _, c := range in.Namespace.Installed() {
		newer := func(e catalog.Entry) bool {
			return coversEntry(p, e, in.Now) && !olm.OlderVersion(e.Version, c.Version)
		}
		if ok, _ := bundle.Covers(p, c.CSV, c.Version, in.Now); ok || c.Package != p.Package ||
			slices.ContainsFunc(channel.Entries, newer) {
			continue
		}
		warn("no version in "+where+" that is allowed is newer than "+text.Name(c.CSV)+", which is installed",
			"OLM never goes back; allow a newer one, or remove the operator to have it installed anew")
	}
}
