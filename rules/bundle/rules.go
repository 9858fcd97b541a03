// Package bundle judges what is installed, whatever brings it: a plan, a step of a plan, or a ClusterServiceVersion
// that is written past OLM. Its rules are in rules.go, in reading order, each with the functions that judge by it.
package bundle

import (
	"fmt"

	"github.com/blang/semver/v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules that code refers to.
const (
	RulePolicyUnreadable  verdict.RuleID = "policy/unreadable"
	RuleMustNotHave       verdict.RuleID = "bundle/mustnothave"
	RuleVersion           verdict.RuleID = "bundle/version"
	RuleVersionRange      verdict.RuleID = "bundle/version-range"
	RuleUnknown           verdict.RuleID = "bundle/unknown"
	RuleConstraint        verdict.RuleID = "bundle/constraint"
	RuleDependencyPending verdict.RuleID = "bundle/dependency-pending"
	RuleUpgrade           verdict.RuleID = "bundle/upgrade"
	RuleApprovalWindow    verdict.RuleID = "bundle/approval-window"
	RuleException         verdict.RuleID = "bundle/exception"
	RuleConsent           verdict.RuleID = "bundle/consent"
	RuleContents          verdict.RuleID = "bundle/contents"
	RuleKubeVersion       verdict.RuleID = "bundle/kube-version"
	RuleReplaces          verdict.RuleID = "bundle/replaces"
)

// ByPolicy judges something by each policy that governs it, depending on what the policy is. Nil finds nothing.
type ByPolicy[In any] struct {
	// Unreadable judges by a policy with faults, Forbids by another one that is mustnothave, Allows by all others.
	Unreadable, Forbids, Allows func(In, *operatorpolicy.Policy) verdict.Finding
}

// Judge returns what the policy finds.
func (b *ByPolicy[In]) Judge(in In, p *operatorpolicy.Policy) verdict.Finding {
	judge := b.Allows
	switch {
	case p.Unreadable() != "":
		judge = b.Unreadable
	case p.MustNotHave:
		judge = b.Forbids
	}
	if judge == nil {
		return verdict.Finding{}
	}
	return judge(in, p)
}

// planned is a bundle of a plan.
type planned struct {
	*Input
	c *carrier.Bundle
}

// rule is a rule with what judges by it. Constraints, consent and exceptions are judged by functions of their own.
type rule struct {
	verdict.Rule
	// contents judges a bundle, whatever brings it; progress judges how a plan leads to it.
	contents ByPolicy[*carrier.Bundle]
	progress ByPolicy[planned]
	// needs judges what a bundle of a plan depends on, whether or not there is a policy.
	needs func(j *Plan, c *carrier.Bundle, held func(what, accepted string))
}

// all are the rules on what is installed, in reading order.
var all = []rule{
	// A policy that cannot be read must not let anything through.
	{Rule: verdict.Rule{ID: RulePolicyUnreadable, Outcomes: verdict.Holds, Override: true, Backstop: true,
		Summary: "the governing policy holds template text or a value that cannot be read, so nothing it governs is let through"},
		contents: ByPolicy[*carrier.Bundle]{Unreadable: func(c *carrier.Bundle, p *operatorpolicy.Policy) verdict.Finding {
			return Unreadable(p, text.Name(c.Name))
		}}},
	// Forbidden operators are not installed.
	{Rule: verdict.Rule{ID: RuleMustNotHave, Outcomes: verdict.DeniesOrHolds, Override: true, Backstop: true,
		Summary: "a mustnothave policy forbids a ClusterServiceVersion"},
		contents: ByPolicy[*carrier.Bundle]{Forbids: forbiddenCSV}},
	// The same name from another catalog is other content.
	{Rule: verdict.Rule{ID: "bundle/catalog", Outcomes: verdict.DeniesOrHolds, Override: true, Edit: nameCatalog,
		Summary: "a ClusterServiceVersion comes from another catalog than the policy names, or from one that is not known"},
		contents: ByPolicy[*carrier.Bundle]{Allows: foreignCSVCatalog}},
	// Only listed versions are installed.
	{Rule: verdict.Rule{ID: RuleVersion, Outcomes: verdict.Denies, Override: true, Backstop: true, Edit: listVersion,
		Summary: "a ClusterServiceVersion is not in the policy's versions, or not with the digest that they list"},
		contents: ByPolicy[*carrier.Bundle]{Allows: unlistedCSV}},
	// Only versions in the range are installed; 1.10 comes after 1.9.
	{Rule: verdict.Rule{ID: RuleVersionRange, Outcomes: verdict.DeniesOrHolds, Override: true, Backstop: true,
		Edit:    widenRange,
		Summary: "the version of a ClusterServiceVersion is outside the policy's versionRange, or not known"},
		contents: ByPolicy[*carrier.Bundle]{Unreadable: outOfRangeCSV, Allows: outOfRangeCSV}},
	// Without its package no policy of a bundle is found.
	{Rule: verdict.Rule{ID: RuleUnknown, Outcomes: verdict.Holds, Override: true, Backstop: true,
		Summary: "the package of a ClusterServiceVersion is not known, or sources disagree about it or about its release"}},
	// OLM deletes what a bundle replaces, with its own rights.
	{Rule: verdict.Rule{ID: RuleReplaces, Outcomes: verdict.DeniesOrHolds, Override: true, Backstop: true,
		Summary: "spec.replaces names an installed ClusterServiceVersion of another package, which is governed or protected from deletion"}},
	// Constraints apply whether or not there is a policy.
	{Rule: verdict.Rule{ID: RuleConstraint, Outcomes: verdict.AnyOutcome, Override: true,
		Summary: "a ClusterServiceVersion does not satisfy a Constraint, or whether it does is not known"}},
	// What depends on something else is not installed before it.
	{Rule: verdict.Rule{ID: RuleDependencyPending, Outcomes: verdict.Holds, Override: true, Backstop: true,
		Summary: "the OperatorPolicy of a ClusterServiceVersion of the plan, or a Constraint that applies here, waits for " +
			"what its Policy depends on"},
		progress: ByPolicy[planned]{Unreadable: suspended, Forbids: suspended, Allows: suspended}},
	// An upgrade of an installed operator is held if upgrades are not approved.
	{Rule: verdict.Rule{ID: RuleUpgrade, Outcomes: verdict.Holds, Override: true,
		Edit:    set("/spec/upgradeApproval", "Automatic"),
		Summary: "the plan upgrades an installed operator and the policy's upgradeApproval is None"},
		progress: ByPolicy[planned]{Allows: heldUpgrade}},
	// A version that OLM resolved from another channel is not what the policy wants.
	{Rule: verdict.Rule{ID: "bundle/channel", Outcomes: verdict.Holds, Override: true, Edit: nameChannel,
		Summary: "the Subscription behind a ClusterServiceVersion follows another channel than the policy names"},
		progress: ByPolicy[planned]{Allows: foreignPlanChannel}},
	// What the catalog deprecates gets no fixes.
	{Rule: verdict.Rule{ID: "bundle/deprecated", Outcomes: verdict.Holds, Override: true,
		Edit:    set("/spec/deprecated", "Allow"),
		Summary: "a ClusterServiceVersion of the plan, its channel or its package is deprecated, or not known not to be, and the policy's deprecated is Hold"},
		progress: ByPolicy[planned]{Allows: heldDeprecated}},
	// What another image of the catalog offers was not reviewed.
	{Rule: verdict.Rule{ID: "bundle/catalog-digest", Outcomes: verdict.Holds, Override: true, Edit: accept("catalog"),
		Summary: "the catalog of a ClusterServiceVersion of the plan runs an image that is not in the policy's catalog.accepted, or is not known, and its catalog.image is Hold"},
		progress: ByPolicy[planned]{Allows: heldCatalogDigest}},
	// What a catalog offers after a jump may be for another cluster, or a mistake.
	{Rule: verdict.Rule{ID: "bundle/catalog-jump", Outcomes: verdict.Holds, Override: true, Edit: accept("catalog"),
		Summary: "an image of that catalog changed too many packages, moved a channel backwards or is for another platform, is not accepted, and the policy's catalog.jump is Hold"},
		progress: ByPolicy[planned]{Allows: heldCatalogJump}},
	// What has just come is tried by others first.
	{Rule: verdict.Rule{ID: "bundle/minimum-age", Outcomes: verdict.Holds, Override: true,
		Summary: "the catalog has offered a ClusterServiceVersion for less than the policy's minimumAge, or that is not recorded"},
		progress: ByPolicy[planned]{Allows: heldAge}},
	// What is approved outside of a maintenance window disturbs when no one expects it.
	{Rule: verdict.Rule{ID: RuleApprovalWindow, Outcomes: verdict.Holds, Override: true,
		Summary: "no approval window of the policy is open, or one of its freezes is in force"},
		progress: ByPolicy[planned]{Allows: func(in planned, p *operatorpolicy.Policy) verdict.Finding {
			return OutsideWindow(in.Now, text.Name(in.c.Name), p)
		}}},
	// What an exception sets aside stays visible.
	{Rule: verdict.Rule{ID: RuleException, Outcomes: verdict.Warns,
		Summary: "what a rule refuses is set aside by an exception of the policy or the Constraint, until that ends"}},
	// Changes of certain classes need a user's consent.
	{Rule: verdict.Rule{ID: RuleConsent, Outcomes: verdict.HoldsOrWarns, Override: true, Edit: accept("consent"),
		Summary: "a ClusterServiceVersion makes a change that spec.consent of the policy holds, and no one has consented to it"}},
	// What was consented to is what is written.
	{Rule: verdict.Rule{ID: RuleContents, Outcomes: verdict.AnyOutcome, Override: true,
		Summary: "the contents of a ClusterServiceVersion are not known, or not those that were read for its plan, and spec.consent of the policy holds changes"}},
	// OLM installs a bundle of which one of the following does not hold, and it stays Pending.
	{Rule: verdict.Rule{ID: "bundle/own-constraint", Outcomes: verdict.HoldsOrWarns, Override: true,
		Summary: "a bundle of the plan has a constraint of its own that neither the plan, nor what is installed, nor the cluster satisfies"},
		needs: ownConstraints},
	{Rule: verdict.Rule{ID: RuleKubeVersion, Outcomes: verdict.HoldsOrWarns, Override: true,
		Summary: "a ClusterServiceVersion of the plan needs a newer Kubernetes than the cluster has"},
		needs: newerKubernetes},
	{Rule: verdict.Rule{ID: "bundle/openshift-version", Outcomes: verdict.HoldsOrWarns, Override: true,
		Summary: "a ClusterServiceVersion of the plan is not for an OpenShift as new as the cluster's"},
		needs: olderOpenShift},
	{Rule: verdict.Rule{ID: "bundle/not-upgradeable", Outcomes: verdict.HoldsOrWarns, Override: true,
		Summary: "the plan replaces an operator whose OperatorCondition says that it is not upgradeable now"},
		needs: notUpgradeable},
}

// Rules returns the rules on what is installed, whatever brings it, in reading order, after the one on the policy that
// governs it. The caller may keep the slice.
func Rules() []verdict.Rule {
	rules := make([]verdict.Rule, len(all))
	for i := range all {
		rules[i] = all[i].Rule
	}
	return rules
}

// Exceptable returns the IDs of the rules that an exception of a policy may name, in reading order: those by which one
// policy that can be read judges what is installed, and that override sets aside.
func Exceptable() []string {
	var ids []string
	for i := range all {
		switch r := &all[i]; {
		case !r.Override || r.needs != nil:
		case r.ID == RulePolicyUnreadable || r.ID == RuleUnknown || r.ID == RuleConstraint:
		default:
			ids = append(ids, string(r.ID))
		}
	}
	return ids
}

// Unreadable holds what a policy with faults governs.
func Unreadable(p *operatorpolicy.Policy, governed string) verdict.Finding {
	return verdict.OnHold(governed, "waits until the policy can be read: "+p.Unreadable())
}

func suspended(in planned, p *operatorpolicy.Policy) verdict.Finding {
	return state.Suspended(p.Pending, p.Waits, text.Name(in.c.Name))
}

func listVersion(in verdict.EditInput) []verdict.PatchOperation {
	return add("/spec/versions/-", in.CSV)
}

func widenRange(in verdict.EditInput) []verdict.PatchOperation {
	written, _, _ := unstructured.NestedString(in.Policy, "spec", "versionRange") // another type ends in no edit
	added := Alternative(in.Version)
	if added == "" || written == "" {
		return nil
	}
	return add("/spec/versionRange", written+added)
}

// Alternative returns what is added to a range so that a version is in it, "" for a version that no range has.
// One with a suffix in which the parser takes an x for a wildcard has another form: -0 is before all suffixes.
func Alternative(version string) string {
	v, err := semver.Parse(version)
	if err != nil {
		return ""
	}
	v.Build = nil
	for _, form := range []string{v.String(), fmt.Sprintf(">=%d.%d.%d-0 <%[1]d.%[2]d.%[4]d-0", v.Major, v.Minor, v.Patch, v.Patch+1)} {
		if only, err := olm.ParseVersionRange(form); err == nil {
			if in, err := only.Contains(version); err == nil && in {
				return " || " + form
			}
		}
	}
	return ""
}

func nameCatalog(in verdict.EditInput) []verdict.PatchOperation {
	if in.Catalog == (olm.Catalog{}) {
		return nil
	}
	return append(add("/spec/subscription/source", in.Catalog.Name),
		add("/spec/subscription/sourceNamespace", in.Catalog.Namespace)...)
}

func nameChannel(in verdict.EditInput) []verdict.PatchOperation {
	if in.Channel == "" {
		return nil
	}
	return add("/spec/subscription/channel", in.Channel)
}

// set returns the edit that sets a field.
func set(path, value string) verdict.Edit {
	return func(verdict.EditInput) []verdict.PatchOperation { return add(path, value) }
}

// accept returns the edit that adds the digest of a refusal to the list accepted in a field of the spec.
func accept(field string) verdict.Edit {
	return func(in verdict.EditInput) []verdict.PatchOperation {
		path := "/spec/" + field + "/accepted"
		accepted, _, _ := unstructured.NestedSlice(in.Policy, "spec", field, "accepted")
		switch {
		case in.Digest == "":
			return nil
		case accepted == nil:
			return add(path, []any{in.Digest})
		}
		return add(path+"/-", in.Digest)
	}
}

func add(path string, value any) []verdict.PatchOperation {
	return []verdict.PatchOperation{{Op: "add", Path: path, Value: value}}
}
