package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on Subscriptions that code refers to.
const (
	RuleSubscriptionOverride      verdict.RuleID = "subscription/override"
	RuleSubscriptionApproval      verdict.RuleID = "subscription/approval"
	RuleSubscriptionContradiction verdict.RuleID = "subscription/contradiction"
	RuleSubscriptionConstraint    verdict.RuleID = "subscription/constraint"
)

// subscriptionRules are the rules on Subscriptions, in reading order.
var subscriptionRules = []rule[*SubscriptionInput]{
	// The ClusterServiceVersions that its status claims would count as those of the new package.
	{Rule: verdict.Rule{ID: "subscription/package", Outcomes: verdict.Denies,
		Summary: "spec.name of a Subscription to a governed package is changed, so that what it installed would belong to another package"},
		judge: changedPackage},
	// A forbidden package must not be subscribed to.
	{Rule: verdict.Rule{ID: "subscription/mustnothave", Outcomes: verdict.Denies,
		Summary: "a mustnothave policy forbids the package, or the startingCSV, that the Subscription asks for"},
		byPolicy: bundle.ByPolicy[*SubscriptionInput]{Forbids: forbiddenSubscription}},
	// The same name from another catalog is other content.
	{Rule: verdict.Rule{ID: "subscription/catalog", Outcomes: verdict.Denies,
		Summary: "spec.source or spec.sourceNamespace is not the catalog that the policy names"},
		byPolicy: bundle.ByPolicy[*SubscriptionInput]{Allows: foreignCatalog}},
	// The channel determines which versions OLM will offer.
	{Rule: verdict.Rule{ID: "subscription/channel", Outcomes: verdict.Denies,
		Summary: "spec.channel is not the channel that the policy names"},
		byPolicy: bundle.ByPolicy[*SubscriptionInput]{Allows: foreignChannel}},
	// The first version must be one that the policy would approve.
	{Rule: verdict.Rule{ID: "subscription/starting-csv", Outcomes: verdict.DeniesOrWarns,
		Summary: "spec.startingCSV is not a version that the policy allows, or without it OLM will ask for one that is not"},
		byPolicy: bundle.ByPolicy[*SubscriptionInput]{Allows: foreignStart}, judge: newestRefused, previews: ifAllowed},
	// The config must not exchange what was judged.
	{Rule: verdict.Rule{ID: "subscription/config", Outcomes: verdict.DeniesOrHolds, Override: true,
		Summary: "spec.config changes the images, volumes or sources of variables of a governed operator, or is not the config " +
			"that the policy sets"},
		byPolicy: bundle.ByPolicy[*SubscriptionInput]{Allows: foreignConfig}},
	{Rule: verdict.Rule{ID: RuleSubscriptionOverride, Outcomes: verdict.Warns, SetsAside: true,
		Summary: "a refused spec.config is written by a user with the RBAC verb override, for the reason given"}},
	// OLM runs a plan that is born approved without asking.
	{Rule: verdict.Rule{ID: RuleSubscriptionApproval, Outcomes: verdict.DeniesOrWarns, Backstop: true,
		Summary: "spec.installPlanApproval is not what the policy computes; the mutating webhook changes it, this rule refuses what is still wrong afterwards"}},
	{Rule: verdict.Rule{ID: RuleSubscriptionContradiction, Outcomes: verdict.Warns,
		Summary: "spec.startingCSV is set while upgrades are approved automatically, so the operator will not stay at that version"}},
	// What is certain before there is a plan is refused; what is likely is warned of, and judged again on the plan.
	{Rule: verdict.Rule{ID: RuleSubscriptionConstraint, Outcomes: verdict.DeniesOrWarns,
		Summary: "what a Subscription asks for does not satisfy a Constraint, or what it will most likely bring will not"},
		judge: violatedConstraints},
	// OLM waits for what the catalog does not offer, and for what is older, without an error.
	{Rule: verdict.Rule{ID: "subscription/unknown-csv", Outcomes: verdict.Warns,
		Summary: "the catalog does not offer spec.startingCSV in the channel, so OLM would wait for it without an error"},
		judge: unknownStart, previews: always},
	// With a second Subscription to a package OLM resolves nothing in the namespace.
	{Rule: verdict.Rule{ID: "subscription/duplicate", Outcomes: verdict.Warns,
		Summary: "another Subscription in the namespace follows the same package, so OLM resolves neither"},
		judge: secondSubscription},
	// An OperatorGroup for all namespaces shares namespaces with every other group.
	{Rule: verdict.Rule{ID: "subscription/owner-conflict", Outcomes: verdict.Warns,
		Summary: "another namespace has the package installed for all namespaces, so OLM fails a second operator that owns the same APIs"},
		judge: ownerConflict, previews: ifCreated},
	{Rule: verdict.Rule{ID: "subscription/older-channel", Outcomes: verdict.Warns,
		Summary: "the newest version in the channel is older than the installed one, and OLM never goes back"},
		judge: olderChannel, previews: always},
	{Rule: verdict.Rule{ID: "subscription/unknown-channel", Outcomes: verdict.Warns,
		Summary: "the package has no channel spec.channel in the catalog, so OLM would wait for it without an error"},
		judge: unknownChannel, previews: always},
	// OLM resolves all Subscriptions of a namespace together.
	{Rule: verdict.Rule{ID: "subscription/held-plan", Outcomes: verdict.Warns,
		Summary: "a plan for other operators of the namespace is held, and OLM puts what a new Subscription asks for into one plan with them"},
		judge: heldPlans, previews: ifCreated},
}

// SubscriptionInput is the input of JudgeSubscription.
type SubscriptionInput Write[olm.Subscription]

// channel returns the channel that the Subscription follows: that of its spec, or the package's default; nil if not
// known.
func (in *SubscriptionInput) channel() *catalog.Channel {
	if c := in.Offered.Channel(in.New.Spec.Channel); c != nil && len(c.Entries) > 0 {
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

// JudgeSubscription decides on creating or updating a Subscription.
func JudgeSubscription(in SubscriptionInput) verdict.Verdict {
	sub := in.New
	v := verdict.Verdict{Object: "subscription " + sub.Metadata.Key()}
	if in.Old != nil && in.Old.Spec == sub.Spec {
		return v // what rules read is unchanged: labels and status are not judged
	}
	policies := in.Namespace.Governing(sub.Spec.Package)
	if !in.fromJudgedPlan() && !in.onlyTurnsManual() {
		judgeBy(subscriptionRules, &in, "this Subscription", policies, &v)
	}
	approval, decider := judgeApproval(&in, policies, &v)
	if sub.Spec.StartingCSV != "" && approval != olm.ApprovalManual {
		advice := "Manual keeps it"
		if decider != nil {
			advice = "spec.versions of " + decider.Source() + " can keep it"
		}
		v.Add(RuleSubscriptionContradiction, verdict.Finding{Field: "spec.startingCSV",
			What: "spec.startingCSV " + text.Quote(sub.Spec.StartingCSV) +
				" does not pin anything while spec.installPlanApproval is " + olm.ApprovalAutomatic,
			Accepted: "OLM then upgrades to the newest version; " + advice})
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
	generatedBy := in.New.Metadata.Annotations.GeneratedBy
	return slices.ContainsFunc(in.Namespace.Plans(), func(p *olm.InstallPlan) bool {
		return generatedBy != "" && p.Metadata.Name == generatedBy && p.Spec.Approved &&
			p.Spec.Approval == olm.ApprovalManual && len(bundle.RefusedSteps(p, in.Namespace, in.Now)) == 0
	})
}

// onlyTurnsManual reports whether an update changes a Subscription to Manual and nothing else: that requests nothing
// new, and waiting for approval is always safe.
func (in *SubscriptionInput) onlyTurnsManual() bool {
	if in.Old == nil || in.New.Spec.InstallPlanApproval != olm.ApprovalManual {
		return false
	}
	before := in.Old.Spec
	before.InstallPlanApproval = olm.ApprovalManual
	return before == in.New.Spec
}

func changedPackage(in *SubscriptionInput, id verdict.RuleID, v *verdict.Verdict) {
	if in.Old == nil || in.Old.Spec.Package == in.New.Spec.Package {
		return
	}
	for _, p := range in.Namespace.Governing(in.Old.Spec.Package) {
		p.Record(v, id, verdict.NotAllowed("changing spec.name from "+text.Quote(in.Old.Spec.Package)+" to "+
			text.Quote(in.New.Spec.Package),
			"make another Subscription for the other package").At("spec.name"))
	}
}

func secondSubscription(in *SubscriptionInput, id verdict.RuleID, v *verdict.Verdict) {
	pkg := in.New.Spec.Package
	if in.Old != nil && in.Old.Spec.Package == pkg {
		return
	}
	var others []string
	for _, s := range in.Namespace.Subscribers(pkg) {
		if s.Metadata.Name != in.New.Metadata.Name {
			others = append(others, s.Metadata.Name)
		}
	}
	if len(others) > 0 {
		v.Add(id, verdict.Finding{Field: "spec.name",
			What: "package " + text.Quote(pkg) + " has another Subscription in this namespace, " +
				text.Names(others, verdict.MaxListed),
			Accepted: "OLM resolves nothing here while there are two; keep one of them"})
	}
}

// ownerConflict does not name the other namespace: it may be another tenant's.
func ownerConflict(in *SubscriptionInput, id verdict.RuleID, v *verdict.Verdict) {
	pkg := in.New.Spec.Package
	if !in.InstalledElsewhere || in.Old != nil && in.Old.Spec.Package == pkg {
		return
	}
	v.Add(id, verdict.Finding{Field: in.path("name"),
		What:     "package " + text.Quote(pkg) + " is installed for all namespaces, from another namespace",
		Accepted: "if it owns APIs OLM fails a second one with InterOperatorGroupOwnerConflict; use the existing one"})
}

func forbiddenSubscription(in *SubscriptionInput, p *operatorpolicy.Policy) verdict.Finding {
	spec := &in.New.Spec
	if !p.AllowsCatalog(olm.Catalog{Namespace: spec.SourceNamespace, Name: spec.Source}) {
		return verdict.Finding{}
	}
	if !p.RestrictsVersions() {
		return verdict.Finding{Decision: verdict.Deny, Field: "spec.name", What: "package " + text.Quote(spec.Package) +
			" is forbidden", Accepted: "remove the Subscription, or change spec.complianceType of the policy"}
	}
	// With a version scope only startingCSV determines the requested version; the plan is judged later.
	if p.VersionRange == nil && p.Versions.Lists(spec.StartingCSV) {
		return verdict.Finding{Decision: verdict.Deny, Field: "spec.startingCSV",
			What:     "spec.startingCSV " + text.Quote(spec.StartingCSV) + " is forbidden",
			Accepted: "any version but " + text.Names(p.Versions.Entries, verdict.MaxListed)}
	}
	return verdict.Finding{}
}

func foreignCatalog(in *SubscriptionInput, p *operatorpolicy.Policy) verdict.Finding {
	spec := &in.New.Spec
	if p.AllowsCatalog(olm.Catalog{Namespace: spec.SourceNamespace, Name: spec.Source}) {
		return verdict.Finding{}
	}
	return verdict.Finding{
		Decision: verdict.Deny, Field: "spec.source",
		What: fmt.Sprintf("spec.source %s in namespace %s is not allowed", text.Quote(spec.Source),
			text.Quote(spec.SourceNamespace)),
		Accepted: "allowed is " + p.CatalogText(),
	}
}

func foreignChannel(in *SubscriptionInput, p *operatorpolicy.Policy) verdict.Finding {
	channel := in.New.Spec.Channel
	if p.Channel == "" || p.Channel == channel {
		return verdict.Finding{}
	}
	return verdict.NotAllowed("spec.channel "+text.Quote(channel), "allowed is "+
		text.Name(p.Channel)).At("spec.channel")
}

func foreignStart(in *SubscriptionInput, p *operatorpolicy.Policy) verdict.Finding {
	start := in.New.Spec.StartingCSV
	if start == "" || p.MayBring(start) {
		// a version range, or a digest, is judged on the plan, where the version and the contents are known
		return verdict.Finding{}
	}
	return verdict.NotAllowed("spec.startingCSV "+text.Quote(start), p.AcceptedVersions()).At("spec.startingCSV")
}

// resolutionFailed is the condition of a Subscription that OLM could not resolve.
const resolutionFailed = "ResolutionFailed"

// unreferencedPattern matches what OLM writes of a ClusterServiceVersion that is installed without a Subscription.
var unreferencedPattern = regexp.MustCompile(`clusterserviceversion (\S+) exists and is not referenced`)

// Unreferenced returns the names of the ClusterServiceVersions that, by OLM's condition, no Subscription refers to.
func Unreferenced(s *olm.Subscription) []string {
	c := s.Condition(resolutionFailed)
	if c == nil {
		return nil
	}
	var names []string
	for _, match := range unreferencedPattern.FindAllStringSubmatch(c.Message, -1) {
		names = append(names, strings.TrimRight(match[1], ",:"))
	}
	return names
}

// FailureOutdated reports whether OLM could not resolve a Subscription for a ClusterServiceVersion that is gone, or
// that the Subscription refers to by now. OLM v0.42 may resolve while it deletes a replaced one, v0.46 while it links a
// new one, and neither resolves again.
func FailureOutdated(s *olm.Subscription, csvs []*olm.CSV) bool {
	return slices.ContainsFunc(Unreferenced(s), func(name string) bool {
		return name == s.Status.CurrentCSV || !slices.ContainsFunc(csvs,
			func(c *olm.CSV) bool { return c.Metadata.Name == name })
	})
}

// Lost returns the ClusterServiceVersion that a Subscription should refer to and does not, nil if there is none: OLM does
// not find it again after the Subscription was created anew, and resolves nothing in the namespace. A copy is never
// returned: it is installed elsewhere.
func Lost(s *olm.Subscription, csvs []*olm.CSV) *olm.CSV {
	if s == nil || s.Status.InstalledCSV != "" || s.Status.CurrentCSV != "" {
		return nil
	}
	var unclear *olm.CSV
	for _, name := range Unreferenced(s) {
		i := slices.IndexFunc(csvs, func(c *olm.CSV) bool { return c.Metadata.Name == name && c.Metadata.Labels.CopiedFrom == "" })
		if i < 0 || csvs[i].Status.Reason == "Copied" {
			continue
		}
		csv, of := csvs[i], csvs[i].Metadata.Annotations.OperatorNamespace
		switch {
		case of != "" && of != s.Metadata.Namespace:
		case csv.Bundle.Package == s.Spec.Package:
			return csv
		case csv.Bundle.Package == "":
			unclear = csv
		}
	}
	return unclear
}

// Dangling reports whether OLM treats a deleted plan as pending.
func Dangling(s *olm.Subscription, ns *state.Namespace) bool {
	return s.Status.State == olm.StateUpgradePending && s.Status.InstallPlan.Name != "" &&
		!slices.ContainsFunc(ns.Plans(), func(p *olm.InstallPlan) bool { return p.Metadata.Name == s.Status.InstallPlan.Name })
}

// RepairByHand returns, as a clause, what is wrong with a Subscription that OLM does not resolve any more, and the command
// by which a user repairs it as the loop does for an enforced policy; "" if nothing is.
func RepairByHand(s *olm.Subscription, ns *state.Namespace) string {
	command := func(status string) string {
		return fmt.Sprintf("kubectl patch subscriptions.operators.coreos.com %s --namespace %s --subresource=status --type=merge "+
			"--patch '{\"status\":{%s}}'", text.Name(s.Metadata.Name), text.Name(s.Metadata.Namespace), status)
	}
	if csv := Lost(s, ns.CSVs()); csv != nil {
		name := text.Name(csv.Metadata.Name)
		return "it lost track of its ClusterServiceVersion " + name + ", which an enforced policy links again; without one: " +
			command(`"currentCSV":"`+name+`"`)
	}
	if Dangling(s, ns) {
		return "OLM waits for InstallPlan " + text.Name(s.Status.InstallPlan.Name) +
			", which is gone, and an enforced policy makes it plan again; without one: " +
			command(`"installPlanRef":null,"installplan":null,"currentCSV":null,"state":null`)
	}
	return ""
}
