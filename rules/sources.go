package rules

import (
	"cmp"
	"slices"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	RuleCatalogSourceConstraint  verdict.RuleID = "catalogsource/constraint"
	RuleClusterCatalogConstraint verdict.RuleID = "clustercatalog/constraint"
)

// catalogSourceRules are the rules on CatalogSources.
var catalogSourceRules = []verdict.Rule{
	{ID: RuleCatalogSourceConstraint, Outcomes: verdict.DeniesOrHolds,
		Summary: "a CatalogSource does not satisfy a Constraint on CatalogSources, or whether it does is not known"},
}

// clusterCatalogRules are the rules on ClusterCatalogs of OLM v1.
var clusterCatalogRules = []verdict.Rule{
	{ID: RuleClusterCatalogConstraint, Outcomes: verdict.AnyOutcome,
		Summary: "the image or the priority of a ClusterCatalog does not satisfy a Constraint on CatalogSources, or the Constraint " +
			"depends on what a ClusterCatalog does not have"},
}

// CatalogSourceInput is the input of JudgeCatalogSource.
type CatalogSourceInput Write[olm.CatalogSource]

// JudgeCatalogSource decides on creating a CatalogSource or changing its spec: it must satisfy every Constraint on
// CatalogSources. A stored one that does not is judged like any other when its spec is changed: whether a change
// matters depends on who makes it. So does the image that OLM, whose writes pass, sets for an annotation.
func JudgeCatalogSource(in CatalogSourceInput) verdict.Verdict {
	v := verdict.Verdict{Object: "catalogsource " + in.New.Metadata.Key()}
	template, kubernetes := in.New.Metadata.Annotations.ImageTemplate, in.Namespace.Facts().Version
	if in.ByOLM || in.Old != nil && in.Old.Spec.Digest == in.New.Spec.Digest &&
		in.Old.Metadata.Annotations.ImageTemplate == template {
		return v
	}
	w := &constraint.Write{On: constraint.OnCatalogSource, Update: in.Old != nil, User: in.User, Groups: in.Groups,
		UserUnknown: in.UserUnknown, Source: in.New}
	if in.Old != nil {
		w.OldSource = in.Old.Templated(kubernetes)
	}
	judge := func(what string) {
		for _, f := range in.Namespace.Constraints().JudgeWrite(w, in.Namespace.ForConstraints(), constraint.NewBudget(in.Interrupt)) {
			recordWrite(&v, RuleCatalogSourceConstraint, what, &f, constraint.Writer)
		}
	}
	const what = "this CatalogSource"
	judge(what)
	if template != "" && v.Decision == verdict.Allow {
		w.Source = in.New.Templated(kubernetes)
		judge(what + " with the image of annotation " + metakey.ImageTemplate)
	}
	return v.Sorted()
}

// recordWrite records a Constraint that a write does not satisfy. One that is undecided only warns if all that it lacks
// is tolerated.
func recordWrite(v *verdict.Verdict, id verdict.RuleID, what string, f *constraint.Result, tolerated constraint.Attributes) {
	source := state.ConstraintRef(f.Definition)
	found := verdict.Finding{From: source, Accepted: state.MustSatisfy(f),
		What: what + " is not judged by " + source.String() + ", since " + text.Escape(f.Why)}
	switch {
	case f.Outcome != constraint.Undecided || f.Attributes == 0 || f.Attributes&^tolerated != 0:
		state.RecordConstraint(v, id, what, f)
		return
	case f.Attributes == constraint.Writer:
		found.What = what + " may be refused by " + source.String() + ", which depends on the user who writes it"
	}
	v.Add(id, found)
}

// ClusterCatalogInput is the input of JudgeClusterCatalog.
type ClusterCatalogInput Write[olm.ClusterCatalog]

// catalogFields are what a Constraint may depend on without refusing a ClusterCatalog: it has no namespace, and none of
// the other fields of a CatalogSource.
const catalogFields = constraint.SourceFields | constraint.NamespaceLabels | constraint.Writer

// JudgeClusterCatalog decides on creating a ClusterCatalog of OLM v1 or changing its image or its priority, by the
// Constraints on CatalogSources: it must satisfy every one of them, as far as these depend on its name, image and
// priority, on the cluster and on the user. Of others it warns.
func JudgeClusterCatalog(in ClusterCatalogInput) verdict.Verdict {
	v := verdict.Verdict{Object: "clustercatalog " + in.New.Metadata.Key()}
	if in.Old != nil && in.Old.Spec == in.New.Spec {
		return v
	}
	w := &constraint.Write{On: constraint.OnCatalogSource, Update: in.Old != nil, User: in.User, Groups: in.Groups,
		UserUnknown: in.UserUnknown, Unknown: constraint.SourceFields, Source: sourceOfClusterCatalog(in.New)}
	if in.New.Spec.Source.Type != olm.CatalogOfImage || in.Old != nil && in.Old.Spec.Source.Type != olm.CatalogOfImage {
		w.Unknown |= constraint.SourceImage
	}
	if in.Old != nil {
		w.OldSource = sourceOfClusterCatalog(in.Old)
	}
	for _, f := range in.Constraints.JudgeWrite(w, constraint.Namespace{Unknown: true}, constraint.NewBudget(in.Interrupt)) {
		recordWrite(&v, RuleClusterCatalogConstraint, "this ClusterCatalog", &f, catalogFields)
	}
	return v.Sorted()
}

// sourceOfClusterCatalog returns a ClusterCatalog as Constraints on CatalogSources see it.
func sourceOfClusterCatalog(c *olm.ClusterCatalog) *olm.CatalogSource {
	return &olm.CatalogSource{Metadata: olm.ObjectMeta{Name: c.Metadata.Name},
		Spec: olm.CatalogSourceSpec{Image: c.Spec.Source.Image.Ref, Priority: c.Spec.Priority}}
}

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
type OperatorGroupInput Write[olm.OperatorGroup]

// JudgeOperatorGroup decides on creating an OperatorGroup or changing its spec. Where a policy or a Constraint may
// refuse operators, what the group changes of their rights is refused too: a verdict on an operator was
// about these rights. A Constraint on OperatorGroups is judged for Opgate's writes as well: a policy must not do what
// its author may not.
func JudgeOperatorGroup(in OperatorGroupInput) verdict.Verdict {
	v := verdict.Verdict{Object: "operatorgroup " + in.New.Metadata.Key()}
	if in.ByOLM || in.Old != nil && in.Old.Spec.Digest == in.New.Spec.Digest {
		return v
	}
	if !in.ByOpgate {
		judgeBy(operatorGroupRules, &in, "this OperatorGroup", nil, &v)
	}
	w := &constraint.Write{On: constraint.OnOperatorGroup, Update: in.Old != nil, User: in.User, Groups: in.Groups,
		UserUnknown: in.UserUnknown, Group: in.New, OldGroup: in.Old, Others: len(in.others())}
	for _, f := range in.Namespace.Constraints().JudgeWrite(w, in.Namespace.ForConstraints(), constraint.NewBudget(in.Interrupt)) {
		recordWrite(&v, RuleOperatorGroupConstraint, "this OperatorGroup", &f, constraint.Writer)
	}
	if targets := in.New.Spec.TargetNamespaces; len(targets) > 1 && v.Decision == verdict.Allow && !in.ByOpgate {
		v.Add(RuleOperatorGroupSeveralTargets, verdict.Finding{Field: "spec.targetNamespaces", Accepted: oneTarget,
			What: "spec.targetNamespaces has several namespaces, " + text.Names(targets, verdict.MaxListed)})
	}
	return v.Sorted()
}

// orOverrideGroup is what allows a change of an OperatorGroup besides a policy.
const orOverrideGroup = "; or let spec.operatorGroup of an OperatorPolicy write it, " + orOverride

// oneTarget is why an OperatorGroup should not have several targets.
const oneTarget = "few operators support that, and OLM may drop it; name one namespace, or leave the targets out for all"

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
	f := verdict.Finding{Decision: verdict.Deny, Field: "spec.targetNamespaces", Accepted: accepted + orOverrideGroup + ends}
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
		Accepted: "allowed is " + text.Name(before) + ", as which OLM installs here" + orOverrideGroup + ends}
}

func unsafeUpgrades(in *OperatorGroupInput) verdict.Finding {
	strategy := in.New.Spec.UpgradeStrategy
	if strategy == "" || strategy == olm.UpgradeDefault || in.Old != nil && in.Old.Spec.UpgradeStrategy == strategy {
		return verdict.Finding{}
	}
	return verdict.NotAllowed("upgradeStrategy "+text.Quote(strategy), "allowed is "+olm.UpgradeDefault+
		orOverrideGroup).At("spec.upgradeStrategy")
}

// OverrideAsked returns the override that a write adds.
func (in *OperatorGroupInput) OverrideAsked() Override {
	return overrideAsked(RuleOperatorGroupOverride, &in.New.Metadata,
		&cmp.Or(in.Old, &olm.OperatorGroup{}).Metadata, in.Now)
}
