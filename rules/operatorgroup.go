package rules

import (
	"cmp"
	"slices"
	"time"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on OperatorGroups that code refers to.
const (
	RuleOperatorGroupConstraint     verdict.RuleID = "operatorgroup/constraint"
	RuleOperatorGroupOverride       verdict.RuleID = "operatorgroup/override"
	RuleOperatorGroupSeveralTargets verdict.RuleID = "operatorgroup/several-targets"
)

// operatorGroupRules are the rules on OperatorGroups, in reading order. The first ones judge what a group changes.
var operatorGroupRules = []rule[*OperatorGroupInput]{
	// OLM would stop installing and upgrading, without an error on any Subscription.
	{Rule: verdict.Rule{ID: "operatorgroup/second", Outcomes: verdict.Denies,
		Summary: "a namespace where something is enforced gets a second OperatorGroup, with which OLM installs and upgrades nothing there"},
		judge: changing(secondGroup)},
	// A verdict on an operator was about its rights.
	{Rule: verdict.Rule{ID: "operatorgroup/scope", Outcomes: verdict.Denies, Override: true,
		Summary: "an OperatorGroup gives the operators of a namespace where something is enforced their rights in further namespaces"},
		judge: changing(widenedGroup)},
	// Without a ServiceAccount OLM installs with its own rights, those of a cluster admin.
	{Rule: verdict.Rule{ID: "operatorgroup/service-account", Outcomes: verdict.Denies, Override: true,
		Summary: "the ServiceAccount as which OLM installs is removed from an OperatorGroup, or replaced, where " +
			"something is enforced"},
		judge: changing(unattenuatedGroup)},
	// OLM would skip the versions that an upgrade has to go through.
	{Rule: verdict.Rule{ID: "operatorgroup/upgrade-strategy", Outcomes: verdict.Denies, Override: true,
		Summary: "an OperatorGroup where something is enforced gets another upgradeStrategy than the default, such as " +
			"TechPreviewUnsafeFailForward"},
		judge: changing(unsafeUpgrades)},
	// A policy must not do what its author may not: Constraints judge Opgate's own writes as well.
	{Rule: verdict.Rule{ID: RuleOperatorGroupConstraint, Outcomes: verdict.DeniesOrHolds,
		Summary: "an OperatorGroup does not satisfy a Constraint on OperatorGroups, or whether it does is not known"}},
	{Rule: verdict.Rule{ID: RuleOperatorGroupOverride, Outcomes: verdict.Warns, SetsAside: true,
		Summary: "a refused OperatorGroup is written by a user with the RBAC verb override, for the reason given"}},
	{Rule: verdict.Rule{ID: RuleOperatorGroupSeveralTargets, Outcomes: verdict.Warns,
		Summary: "an OperatorGroup names several target namespaces, which OLM advises against"}},
}

// changing records what a group changes where a policy or a Constraint may refuse operators.
func changing(judge func(*OperatorGroupInput) verdict.Finding) func(*OperatorGroupInput, verdict.RuleID, *verdict.Verdict) {
	return func(in *OperatorGroupInput, id verdict.RuleID, v *verdict.Verdict) {
		if f := judge(in); !f.Silent() {
			state.RecordForNamespace(v, in.Namespace, id, f)
		}
	}
}

// OperatorGroupInput is the input of JudgeOperatorGroup.
type OperatorGroupInput struct {
	// New is the object as it would be stored, Old the stored one, nil on create.
	New, Old  *olm.OperatorGroup
	Namespace *state.Namespace
	// ByOpgate reports whether the write comes from Opgate's own identity, as spec.operatorGroup of a policy requires.
	ByOpgate bool
	// User is the name of the user who writes, and Groups are those of the user.
	User   string
	Groups []string
	// UserUnknown is set where neither is known, as in files.
	UserUnknown bool
	// Stored reports whether the group may exist already although Old is nil, as in files: operators that are installed
	// do not show that it was deleted before.
	Stored bool
	// Now is that of PlanInput.
	Now time.Time
	// Interrupt is that of PlanInput.
	Interrupt <-chan struct{}
}

// JudgeOperatorGroup decides on creating an OperatorGroup or changing its spec. Where a policy or a Constraint may
// refuse operators, what the group changes of their rights is refused too: a verdict on an operator was
// about these rights. A Constraint on OperatorGroups is judged for Opgate's writes as well: a policy must not do what
// its author may not.
func JudgeOperatorGroup(in OperatorGroupInput) verdict.Verdict {
	v := verdict.Verdict{Object: "operatorgroup " + in.New.Metadata.Key()}
	if in.Old != nil && in.Old.Spec.Digest == in.New.Spec.Digest {
		return v
	}
	if !in.ByOpgate {
		for i := range operatorGroupRules {
			if r := &operatorGroupRules[i]; r.judge != nil {
				r.judge(&in, r.ID, &v)
			}
		}
	}
	w := &constraint.Write{On: constraint.OnOperatorGroup, Update: in.Old != nil, User: in.User, Groups: in.Groups,
		UserUnknown: in.UserUnknown, Group: in.groupOf(in.New)}
	if in.Old != nil {
		w.OldGroup = in.groupOf(in.Old)
	}
	recordWrite(&v, RuleOperatorGroupConstraint, "this OperatorGroup", w, in.Namespace, in.Interrupt)
	if targets := in.New.Spec.TargetNamespaces; len(targets) > 1 && v.Decision == verdict.Allow && !in.ByOpgate {
		v.Add(RuleOperatorGroupSeveralTargets, verdict.Finding{Field: "spec.targetNamespaces", Accepted: oneTarget,
			What: "spec.targetNamespaces has several namespaces, " + text.Names(targets, verdict.MaxListed)})
	}
	return v.Sorted()
}

// orOverride is what allows a change of an OperatorGroup besides a policy.
const orOverride = "; or let spec.operatorGroup of an OperatorPolicy write it, or give a reason in annotation " +
	metakey.OverrideReason + " as a user with the verb override"

// oneTarget is why an OperatorGroup should not have several targets.
const oneTarget = "few operators support that, and OLM may drop it; name one namespace, or leave the targets out for all"

// groupOf returns an OperatorGroup as Constraints see it.
func (in *OperatorGroupInput) groupOf(g *olm.OperatorGroup) constraint.Group {
	return constraint.Group{
		Name: g.Metadata.Name, Namespace: g.Metadata.Namespace, ServiceAccountName: g.Spec.ServiceAccount,
		UpgradeStrategy:  g.Spec.UpgradeStrategy,
		TargetNamespaces: g.Spec.TargetNamespaces, AllNamespaces: g.Spec.AllNamespaces(), Selector: g.Spec.Selects(),
		Others: len(in.others()),
	}
}

// others returns the names of the other OperatorGroups in the namespace, sorted.
func (in *OperatorGroupInput) others() []string {
	var names []string
	for _, g := range in.Namespace.Groups() {
		if g.Metadata.Name != in.New.Metadata.Name {
			names = append(names, g.Metadata.Name)
		}
	}
	slices.Sort(names)
	return names
}

func secondGroup(in *OperatorGroupInput) verdict.Finding {
	others := in.others()
	if in.Old != nil || len(others) == 0 {
		return verdict.Finding{}
	}
	return verdict.NotAllowed("a second OperatorGroup beside "+text.Names(others, verdict.MaxListed),
		"OLM installs nothing in a namespace with two; change "+text.Name(others[0])+
			", or delete it first").At("metadata.name")
}

// before returns the spec of the group that a write replaces, the recorded one if that was deleted before,
// or nil; ends is that of ReplacedBy.
func (in *OperatorGroupInput) before() (spec *olm.OperatorGroupSpec, ends string) {
	if in.Old != nil {
		return &in.Old.Spec, ""
	}
	if recorded := in.Namespace.RecordedGroup(); recorded != nil && !in.Stored {
		return recorded, in.Namespace.RecordEnds()
	}
	return nil, ""
}

// widenedGroup refuses further namespaces. A group that is created where operators are installed was deleted before. If
// what it was for is not recorded, the namespace itself is allowed.
func widenedGroup(in *OperatorGroupInput) verdict.Finding {
	before, ends := in.before()
	if before == nil && (in.Stored || !slices.ContainsFunc(in.Namespace.Installed(),
		func(i state.Installed) bool { return i.Spec != nil })) {
		return verdict.Finding{}
	}
	accepted := "allowed are its present target namespaces"
	switch {
	case before == nil:
		before = &olm.OperatorGroupSpec{TargetNamespaces: []string{in.New.Metadata.Namespace}}
		accepted = "allowed is " + text.Name(in.New.Metadata.Namespace) +
			", the namespace of the operators that are installed"
	case len(before.TargetNamespaces) > 0:
		accepted = "allowed is " + text.Names(before.TargetNamespaces, verdict.MaxListed)
	case ends != "":
		accepted = "allowed are the target namespaces of the one that was deleted"
	}
	after := &in.New.Spec
	f := verdict.Finding{Decision: verdict.Deny, Field: "spec.targetNamespaces", Accepted: accepted + orOverride + ends}
	switch {
	case before.AllNamespaces():
	case after.AllNamespaces():
		f.What = "an OperatorGroup for all namespaces is not allowed"
	case after.Selects() && !after.SelectsAs(before):
		f.Field, f.What = "spec.selector", "selecting namespaces by other labels is not allowed"
	default:
		var added []string
		for _, name := range after.TargetNamespaces {
			if !slices.Contains(before.TargetNamespaces, name) {
				added = append(added, name)
			}
		}
		if len(added) > 0 {
			f.What = "target namespace " + text.Names(added, verdict.MaxListed) + " is not allowed"
		}
	}
	return f
}

// unattenuatedGroup refuses to remove or replace the account as which OLM installs. A group that is created where one
// is recorded, or where plans were run as an account, was deleted before.
func unattenuatedGroup(in *OperatorGroupInput) verdict.Finding {
	before, after := "", in.New.Spec.ServiceAccount
	replaced, ends := in.before()
	if replaced != nil {
		before = replaced.ServiceAccount
	} else if !in.Stored {
		for _, plan := range in.Namespace.Plans() {
			if name := plan.Status.ServiceAccount.Name; name != "" && (before == "" || name == after) {
				before = name
			}
		}
	}
	if before == "" || before == after {
		return verdict.Finding{}
	}
	what := "serviceAccountName " + text.Quote(after) + " is not allowed"
	if after == "" {
		what = "an OperatorGroup without serviceAccountName is not allowed"
	}
	return verdict.Finding{Decision: verdict.Deny, Field: "spec.serviceAccountName", What: what,
		Accepted: "allowed is " + text.Name(before) + ", as which OLM installs here" + orOverride + ends}
}

func unsafeUpgrades(in *OperatorGroupInput) verdict.Finding {
	strategy := in.New.Spec.UpgradeStrategy
	if strategy == "" || strategy == olm.UpgradeDefault || in.Old != nil && in.Old.Spec.UpgradeStrategy == strategy {
		return verdict.Finding{}
	}
	return verdict.NotAllowed("upgradeStrategy "+text.Quote(strategy), "allowed is "+olm.UpgradeDefault+
		orOverride).At("spec.upgradeStrategy")
}

// OverrideAsked returns the override that a write adds.
func (in *OperatorGroupInput) OverrideAsked() Override {
	return overrideAsked(RuleOperatorGroupOverride, &in.New.Metadata,
		&cmp.Or(in.Old, &olm.OperatorGroup{}).Metadata, in.Now)
}
