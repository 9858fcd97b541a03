package rules

import (
	"slices"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
)

// The rules on OperatorGroups.
const (
	RuleOperatorGroupSecond          RuleID = "operatorgroup/second"
	RuleOperatorGroupScope           RuleID = "operatorgroup/scope"
	RuleOperatorGroupServiceAccount  RuleID = "operatorgroup/service-account"
	RuleOperatorGroupUpgradeStrategy RuleID = "operatorgroup/upgrade-strategy"
	RuleOperatorGroupConstraint      RuleID = "operatorgroup/constraint"
	RuleOperatorGroupOverride        RuleID = "operatorgroup/override"
	RuleOperatorGroupSeveralTargets  RuleID = "operatorgroup/several-targets"
)

var (
	operatorGroupSecond = Rule{ID: RuleOperatorGroupSecond, Outcomes: deny,
		Summary: "a namespace where something is enforced gets a second OperatorGroup, with which OLM installs and upgrades nothing there"}
	operatorGroupScope = Rule{ID: RuleOperatorGroupScope, Outcomes: deny, Override: true,
		Summary: "an OperatorGroup gives the operators of a namespace where something is enforced their rights in further namespaces"}
	operatorGroupServiceAccount = Rule{ID: RuleOperatorGroupServiceAccount, Outcomes: deny, Override: true,
		Summary: "the ServiceAccount as which OLM installs is removed from an OperatorGroup, or replaced, where something is enforced"}
	operatorGroupUpgradeStrategy = Rule{ID: RuleOperatorGroupUpgradeStrategy, Outcomes: deny, Override: true,
		Summary: "an OperatorGroup where something is enforced gets another upgradeStrategy than the default, such as TechPreviewUnsafeFailForward"}
	operatorGroupConstraint = Rule{ID: RuleOperatorGroupConstraint, Outcomes: denyOrHold,
		Summary: "an OperatorGroup does not satisfy a Constraint on OperatorGroups, or whether it does is not known"}
	operatorGroupOverride = Rule{ID: RuleOperatorGroupOverride, Outcomes: warn,
		Summary: "a refused OperatorGroup is written by a user with the RBAC verb override, for the reason given"}
	operatorGroupSeveralTargets = Rule{ID: RuleOperatorGroupSeveralTargets, Outcomes: warn,
		Summary: "an OperatorGroup names several target namespaces, which OLM advises against"}
)

// OperatorGroupInput is the input of JudgeOperatorGroup.
type OperatorGroupInput struct {
	// New is the object as it would be stored, Old the stored one, nil on create.
	New, Old  *olm.OperatorGroup
	Namespace *Namespace
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
	// Interrupt is that of PlanInput.
	Interrupt <-chan struct{}
}

// JudgeOperatorGroup decides on creating an OperatorGroup or changing its spec. Where a policy or a Constraint may
// refuse operators, what the group changes of their rights is refused too (threat O9): a verdict on an operator was
// about these rights. A Constraint on OperatorGroups is judged for Opgate's writes as well: a policy must not do what
// its author may not.
func JudgeOperatorGroup(in OperatorGroupInput) Verdict {
	v := Verdict{Object: "operatorgroup " + in.New.Metadata.Key()}
	if in.Old != nil && in.Old.Spec.Digest == in.New.Spec.Digest {
		return v
	}
	if !in.ByOpgate {
		for _, rule := range groupChecks {
			if f := rule.judge(&in); !f.silent() {
				recordForNamespace(&v, in.Namespace, rule.ID, f)
			}
		}
	}
	w := &constraint.Write{On: constraint.OnOperatorGroup, Update: in.Old != nil, User: in.User, Groups: in.Groups, UserUnknown: in.UserUnknown,
		Group: in.groupOf(in.New)}
	if in.Old != nil {
		w.OldGroup = in.groupOf(in.Old)
	}
	v.recordWrite(RuleOperatorGroupConstraint, "this OperatorGroup", w, in.Namespace, in.Interrupt)
	if targets := in.New.Spec.TargetNamespaces; len(targets) > 1 && v.Decision == Allow && !in.ByOpgate {
		v.warn(Reason{Rule: RuleOperatorGroupSeveralTargets, Field: "spec.targetNamespaces", Message: sentence(
			"spec.targetNamespaces has several namespaces, "+text.Names(targets, maxListed), RuleOperatorGroupSeveralTargets, oneTarget)})
	}
	return v.sorted()
}

// groupChecks are the rules on what an OperatorGroup changes, in reading order.
var groupChecks = []struct {
	Rule
	judge func(in *OperatorGroupInput) finding
}{
	{operatorGroupSecond, secondGroup},
	{operatorGroupScope, widenedGroup},
	{operatorGroupServiceAccount, unattenuatedGroup},
	{operatorGroupUpgradeStrategy, unsafeUpgrades},
}

// orOverride is what allows a change of an OperatorGroup besides a policy.
const orOverride = "; or let spec.operatorGroup of an OperatorPolicy write it, or give a reason in annotation " + OverrideReasonAnnotation +
	" as a user with the verb override"

// oneTarget is why an OperatorGroup should not have several targets (R-OP-16).
const oneTarget = "few operators support that, and OLM may drop it; name one namespace, or leave the targets out for all"

// groupOf returns an OperatorGroup as Constraints see it.
func (in *OperatorGroupInput) groupOf(g *olm.OperatorGroup) constraint.Group {
	return constraint.Group{
		Name: g.Metadata.Name, Namespace: g.Metadata.Namespace, ServiceAccountName: g.Spec.ServiceAccount, UpgradeStrategy: g.Spec.UpgradeStrategy,
		TargetNamespaces: g.Spec.TargetNamespaces, AllNamespaces: g.Spec.AllNamespaces(), Selector: g.Spec.Selects(), Others: len(in.others()),
	}
}

// others returns the names of the other OperatorGroups in the namespace, sorted.
func (in *OperatorGroupInput) others() []string {
	var names []string
	if in.Namespace != nil {
		for _, g := range in.Namespace.groups {
			if g.Metadata.Name != in.New.Metadata.Name {
				names = append(names, g.Metadata.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// secondGroup refuses a second group in a namespace: OLM would stop installing and upgrading there, without an error on
// any Subscription.
func secondGroup(in *OperatorGroupInput) finding {
	others := in.others()
	if in.Old != nil || len(others) == 0 {
		return finding{}
	}
	return finding{decision: Deny, field: "metadata.name",
		what:     "a second OperatorGroup beside " + text.Names(others, maxListed) + " is not allowed",
		accepted: "OLM installs nothing in a namespace with two; change " + text.Name(others[0]) + ", or delete it first"}
}

// before returns the spec of the group that a write replaces, the recorded one if that was deleted before (threat O55),
// or nil; ends is that of replacedBy.
func (in *OperatorGroupInput) before() (spec *olm.OperatorGroupSpec, ends string) {
	if in.Old != nil {
		return &in.Old.Spec, ""
	}
	if recorded := in.Namespace.recordedGroup(); recorded != nil && !in.Stored {
		return recorded, in.Namespace.recordEnds()
	}
	return nil, ""
}

// widenedGroup refuses further namespaces. A group that is created where operators are installed was deleted before. If
// what it was for is not recorded, the namespace itself is allowed.
func widenedGroup(in *OperatorGroupInput) finding {
	before, ends := in.before()
	if before == nil && (in.Stored || !slices.ContainsFunc(in.Namespace.Installed(), func(i Installed) bool { return i.spec != nil })) {
		return finding{}
	}
	accepted := "allowed is what it is for now"
	switch {
	case before == nil:
		before = &olm.OperatorGroupSpec{TargetNamespaces: []string{in.New.Metadata.Namespace}}
		accepted = "allowed is " + text.Name(in.New.Metadata.Namespace) + ", the namespace of the operators that are installed"
	case len(before.TargetNamespaces) > 0:
		accepted = "allowed is " + text.Names(before.TargetNamespaces, maxListed)
	case ends != "":
		accepted = "allowed is what the last one was for"
	}
	after := &in.New.Spec
	f := finding{decision: Deny, field: "spec.targetNamespaces", accepted: accepted + orOverride + ends}
	switch {
	case before.AllNamespaces():
	case after.AllNamespaces():
		f.what = "an OperatorGroup for all namespaces is not allowed"
	case after.Selects() && !after.SelectsAs(before):
		f.field, f.what = "spec.selector", "selecting namespaces by other labels is not allowed"
	default:
		var added []string
		for _, name := range after.TargetNamespaces {
			if !slices.Contains(before.TargetNamespaces, name) {
				added = append(added, name)
			}
		}
		if len(added) > 0 {
			f.what = "target namespace " + text.Names(added, maxListed) + " is not allowed"
		}
	}
	return f
}

// unattenuatedGroup refuses to remove or replace the account as which OLM installs. Without one OLM installs with its
// own rights, those of a cluster admin. A group that is created where one is recorded, or where plans were run as an
// account, was deleted before.
func unattenuatedGroup(in *OperatorGroupInput) finding {
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
		return finding{}
	}
	what := "serviceAccountName " + text.Quote(after) + " is not allowed"
	if after == "" {
		what = "an OperatorGroup without serviceAccountName is not allowed"
	}
	return finding{decision: Deny, field: "spec.serviceAccountName", what: what,
		accepted: "allowed is " + text.Name(before) + ", as which OLM installs here" + orOverride + ends}
}

// unsafeUpgrades refuses every upgradeStrategy but the default: OLM would skip the versions that an upgrade has to go
// through.
func unsafeUpgrades(in *OperatorGroupInput) finding {
	strategy := in.New.Spec.UpgradeStrategy
	if strategy == "" || strategy == olm.UpgradeDefault || in.Old != nil && in.Old.Spec.UpgradeStrategy == strategy {
		return finding{}
	}
	return finding{decision: Deny, field: "spec.upgradeStrategy", what: "upgradeStrategy " + text.Quote(strategy) + " is not allowed",
		accepted: "allowed is " + olm.UpgradeDefault + orOverride}
}

// OverrideAsked returns the reason that a write adds in annotation opgate.io/override-reason; "" if it adds none.
func (in *OperatorGroupInput) OverrideAsked() string {
	reason := overrideReason(&in.New.Metadata)
	if in.Old != nil && reason == overrideReason(&in.Old.Metadata) {
		return ""
	}
	return reason
}
