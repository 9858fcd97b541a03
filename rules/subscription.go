package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on the spec of a Subscription.
const (
	RuleSubscriptionPackage       verdict.RuleID = "subscription/package"
	RuleSubscriptionMustNotHave   verdict.RuleID = "subscription/mustnothave"
	RuleSubscriptionCatalog       verdict.RuleID = "subscription/catalog"
	RuleSubscriptionChannel       verdict.RuleID = "subscription/channel"
	RuleSubscriptionStartingCSV   verdict.RuleID = "subscription/starting-csv"
	RuleSubscriptionContradiction verdict.RuleID = "subscription/contradiction"
	RuleSubscriptionDuplicate     verdict.RuleID = "subscription/duplicate"
	RuleSubscriptionOwnerConflict verdict.RuleID = "subscription/owner-conflict"
)

var (
	subscriptionPackage = verdict.Rule{ID: RuleSubscriptionPackage, Outcomes: verdict.Denies,
		Summary: "spec.name of a Subscription to a governed package is changed, so that what it installed would belong to another package"}
	subscriptionMustNotHave = verdict.Rule{ID: RuleSubscriptionMustNotHave, Outcomes: verdict.Denies,
		Summary: "a mustnothave policy forbids the package, or the startingCSV, that the Subscription asks for"}
	subscriptionCatalog = verdict.Rule{ID: RuleSubscriptionCatalog, Outcomes: verdict.Denies,
		Summary: "spec.source or spec.sourceNamespace is not the catalog that the policy names"}
	subscriptionChannel = verdict.Rule{ID: RuleSubscriptionChannel, Outcomes: verdict.Denies,
		Summary: "spec.channel is not the channel that the policy names"}
	subscriptionStartingCSV = verdict.Rule{ID: RuleSubscriptionStartingCSV, Outcomes: verdict.DeniesOrWarns,
		Summary: "spec.startingCSV is not a version that the policy allows, or without it OLM will ask for one that is not"}
	subscriptionContradiction = verdict.Rule{ID: RuleSubscriptionContradiction, Outcomes: verdict.Warns,
		Summary: "spec.startingCSV is set while upgrades are approved automatically, so the operator will not stay at that version"}
	subscriptionDuplicate = verdict.Rule{ID: RuleSubscriptionDuplicate, Outcomes: verdict.Warns,
		Summary: "another Subscription in the namespace follows the same package, so OLM resolves neither"}
	subscriptionOwnerConflict = verdict.Rule{ID: RuleSubscriptionOwnerConflict, Outcomes: verdict.Warns,
		Summary: "another namespace has the package installed for all namespaces, so OLM fails a second operator that owns the same APIs"}
)

// SubscriptionInput is the input of JudgeSubscription.
type SubscriptionInput struct {
	// Subscription is the object as it would be stored.
	Subscription *olm.Subscription
	// Old is the stored object on update, nil on create.
	Old *olm.Subscription
	// Namespace is the Subscription's namespace; nil if it has no known objects.
	Namespace *state.Namespace
	// ByOLM reports whether the write comes from OLM's own identity.
	ByOLM bool
	// InstalledElsewhere reports whether another namespace has the package installed for all namespaces.
	InstalledElsewhere bool
	// Offered is the package in the catalog that the Subscription names; nil if not known.
	Offered *catalog.Package
	// Now is that of PlanInput.
	Now time.Time
	// Interrupt is that of PlanInput.
	Interrupt <-chan struct{}
	// Mode is how to handle installPlanApproval. The validating webhook always denies: it cannot change fields.
	Mode ApprovalMode

	// policy is set for the Subscription that a policy asks for, whose fields are in spec.subscription.
	policy bool
}

// channel returns the channel that the Subscription follows: that of its spec, or the package's default; nil if not
// known.
func (in *SubscriptionInput) channel() *catalog.Channel {
	if c := in.Offered.Channel(in.Subscription.Spec.Channel); c != nil && len(c.Entries) > 0 {
		return c
	}
	return nil
}

// path returns the path of a field of the Subscription's spec.
func (in *SubscriptionInput) path(field string) string {
	if in.policy {
		return "spec.subscription." + field
	}
	return "spec." + field
}

// subscriptionChecks run all, in this order, for every policy that governs the package.
var subscriptionChecks = []struct {
	rule  verdict.RuleID
	judge func(*SubscriptionInput, *state.OperatorPolicy) verdict.Finding
}{
	// A policy that cannot be read must not let anything through (threat G5).
	{bundle.RulePolicyUnreadable, func(_ *SubscriptionInput, p *state.OperatorPolicy) verdict.Finding {
		return bundle.Unreadable(p, "this Subscription")
	}},
	// A forbidden package must not be subscribed to.
	{RuleSubscriptionMustNotHave, forbiddenSubscription},
	// The same name from another catalog is other content (threat O6).
	{RuleSubscriptionCatalog, foreignCatalog},
	// The channel determines which versions OLM will offer.
	{RuleSubscriptionChannel, foreignChannel},
	// The first version must be one that the policy would approve.
	{RuleSubscriptionStartingCSV, foreignStart},
	// The config must not exchange what was judged.
	{RuleSubscriptionConfig, foreignConfig},
}

// JudgeSubscription decides on creating or updating a Subscription.
func JudgeSubscription(in SubscriptionInput) verdict.Verdict {
	sub := in.Subscription
	v := verdict.Verdict{Object: "subscription " + sub.Metadata.Key()}
	if in.Old != nil && in.Old.Spec == sub.Spec {
		return v // what rules read is unchanged: labels and status are not judged
	}
	policies := in.Namespace.Governing(sub.Spec.Package)
	if !in.fromJudgedPlan() && !in.onlyTurnsManual() {
		for _, p := range policies {
			for _, check := range subscriptionChecks {
				p.Record(&v, check.rule, check.judge(&in, p))
			}
		}
		judgePackageChange(&in, &v)
		judgeChannel(&in, &v)
		judgeDuplicate(&in, &v)
		judgeOwnerConflict(&in, &v)
		judgeHeldPlans(&in, &v)
	}
	approval, decider := judgeApproval(&in, policies, &v)
	if sub.Spec.StartingCSV != "" && approval != olm.ApprovalManual {
		advice := "Manual keeps it"
		if decider != nil {
			advice = "spec.versions of " + decider.Source() + " can keep it"
		}
		v.Warn(verdict.Reason{Rule: RuleSubscriptionContradiction, Field: "spec.startingCSV", Message: verdict.Sentence(
			"spec.startingCSV "+text.Quote(sub.Spec.StartingCSV)+
				" does not pin anything while spec.installPlanApproval is "+olm.ApprovalAutomatic,
			RuleSubscriptionContradiction, "OLM goes on to the newest version; "+advice)})
	}
	if v.Decision != verdict.Allow {
		for i := range v.Changes {
			v.Changes[i].Message = "" // nothing is stored
		}
	}
	return v.Sorted()
}

// fromJudgedPlan reports whether OLM creates this Subscription, for a dependency, as a step of an approved plan that
// would be allowed now, or by an override. Refusing a step leaves such a plan incomplete, and OLM repeats the step
// forever. Plans that were born approved were never judged.
func (in *SubscriptionInput) fromJudgedPlan() bool {
	if !in.ByOLM || in.Old != nil || in.Namespace == nil {
		return false
	}
	generatedBy := in.Subscription.Metadata.Annotations.GeneratedBy
	return slices.ContainsFunc(in.Namespace.Plans(), func(p *olm.InstallPlan) bool {
		return generatedBy != "" && p.Metadata.Name == generatedBy && p.Spec.Approved &&
			p.Spec.Approval == olm.ApprovalManual &&
			len(bundle.RefusedSteps(p, in.Namespace, in.Now)) == 0
	})
}

// onlyTurnsManual reports whether an update changes a Subscription to Manual and nothing else: that requests nothing
// new, and waiting for approval is always safe.
func (in *SubscriptionInput) onlyTurnsManual() bool {
	if in.Old == nil || in.Subscription.Spec.InstallPlanApproval != olm.ApprovalManual {
		return false
	}
	before := in.Old.Spec
	before.InstallPlanApproval = olm.ApprovalManual
	return before == in.Subscription.Spec
}

// judgePackageChange refuses to change the governed package of a Subscription: the ClusterServiceVersions that its
// status claims would count as those of the new package.
func judgePackageChange(in *SubscriptionInput, v *verdict.Verdict) {
	if in.Old == nil || in.Old.Spec.Package == in.Subscription.Spec.Package {
		return
	}
	for _, p := range in.Namespace.Governing(in.Old.Spec.Package) {
		p.Record(v, RuleSubscriptionPackage, verdict.Finding{Decision: verdict.Deny, Field: "spec.name",
			What: "changing spec.name from " + text.Quote(in.Old.Spec.Package) + " to " +
				text.Quote(in.Subscription.Spec.Package) + " is not allowed",
			Accepted: "make another Subscription for the other package"})
	}
}

// judgeDuplicate warns of a second Subscription to a package: OLM then resolves nothing in the namespace (R-OP-16).
func judgeDuplicate(in *SubscriptionInput, v *verdict.Verdict) {
	pkg := in.Subscription.Spec.Package
	if in.Old != nil && in.Old.Spec.Package == pkg {
		return
	}
	var others []string
	for _, s := range in.Namespace.Subscribers(pkg) {
		if s.Metadata.Name != in.Subscription.Metadata.Name {
			others = append(others, s.Metadata.Name)
		}
	}
	if len(others) > 0 {
		v.Warn(verdict.Reason{Rule: RuleSubscriptionDuplicate, Field: "spec.name", Message: verdict.Sentence(
			"package "+text.Quote(pkg)+" has another Subscription in this namespace, "+
				text.Names(others, verdict.MaxListed),
			RuleSubscriptionDuplicate, "OLM resolves nothing here while there are two; keep one of them")})
	}
}

// judgeOwnerConflict warns of a second operator that owns the APIs of one whose OperatorGroup is for all namespaces,
// and so shares namespaces with every other group (R-OP-16). The other namespace may be another tenant's: it is not
// named.
func judgeOwnerConflict(in *SubscriptionInput, v *verdict.Verdict) {
	pkg := in.Subscription.Spec.Package
	if !in.InstalledElsewhere || in.Old != nil && in.Old.Spec.Package == pkg {
		return
	}
	v.Warn(verdict.Reason{Rule: RuleSubscriptionOwnerConflict, Field: in.path("name"), Message: verdict.Sentence(
		"package "+text.Quote(pkg)+" is installed for all namespaces, from another one",
		RuleSubscriptionOwnerConflict,
		"if it owns APIs OLM fails a second one with InterOperatorGroupOwnerConflict; use the one that is there")})
}

func forbiddenSubscription(in *SubscriptionInput, p *state.OperatorPolicy) verdict.Finding {
	spec := &in.Subscription.Spec
	if !p.MustNotHave || p.Unreadable() != "" ||
		!p.AllowsCatalog(olm.Catalog{Namespace: spec.SourceNamespace, Name: spec.Source}) {
		return verdict.Finding{}
	}
	if !p.RestrictsVersions() {
		return verdict.Finding{Decision: verdict.Deny, Field: "spec.name",
			What:     "package " + text.Quote(spec.Package) + " is forbidden",
			Accepted: "remove the Subscription, or change spec.complianceType of the policy"}
	}
	// With a version scope only startingCSV determines the requested version; the plan is judged later.
	if p.VersionRange == nil && p.Versions.Lists(spec.StartingCSV) {
		return verdict.Finding{Decision: verdict.Deny, Field: "spec.startingCSV",
			What:     "spec.startingCSV " + text.Quote(spec.StartingCSV) + " is forbidden",
			Accepted: "any version but " + text.Names(p.Versions.Entries, verdict.MaxListed)}
	}
	return verdict.Finding{}
}

func foreignCatalog(in *SubscriptionInput, p *state.OperatorPolicy) verdict.Finding {
	spec := &in.Subscription.Spec
	if p.MustNotHave || p.Unreadable() != "" ||
		p.AllowsCatalog(olm.Catalog{Namespace: spec.SourceNamespace, Name: spec.Source}) {
		return verdict.Finding{}
	}
	return verdict.Finding{
		Decision: verdict.Deny, Field: "spec.source",
		What: fmt.Sprintf("spec.source %s in namespace %s is not allowed", text.Quote(spec.Source),
			text.Quote(spec.SourceNamespace)),
		Accepted: "allowed is " + p.CatalogText(),
	}
}

func foreignChannel(in *SubscriptionInput, p *state.OperatorPolicy) verdict.Finding {
	channel := in.Subscription.Spec.Channel
	if p.MustNotHave || p.Unreadable() != "" || p.Channel == "" || p.Channel == channel {
		return verdict.Finding{}
	}
	return verdict.Finding{Decision: verdict.Deny, Field: "spec.channel",
		What:     "spec.channel " + text.Quote(channel) + " is not allowed",
		Accepted: "allowed is " + text.Name(p.Channel)}
}

func foreignStart(in *SubscriptionInput, p *state.OperatorPolicy) verdict.Finding {
	start := in.Subscription.Spec.StartingCSV
	if p.MustNotHave || p.Unreadable() != "" || start == "" || p.MayBring(start) {
		// a version range, or a digest, is judged on the plan, where the version and the contents are known
		return verdict.Finding{}
	}
	return verdict.Finding{Decision: verdict.Deny, Field: "spec.startingCSV",
		What:     "spec.startingCSV " + text.Quote(start) + " is not allowed",
		Accepted: p.AcceptedVersions()}
}
