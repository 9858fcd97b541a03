package rules

import (
	"slices"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// The rules on who writes what of a plan.
const (
	RulePlanCreate       RuleID = "plan/create"
	RulePlanBornApproved RuleID = "plan/born-approved"
	RulePlanFrozen       RuleID = "plan/frozen"
	RulePlanStatusPhase  RuleID = "plan/status-phase"
)

var (
	planCreate = Rule{RulePlanCreate, OutcomeDeny,
		"an InstallPlan is created by somebody else than OLM in a governed namespace"}
	planBornApproved = Rule{RulePlanBornApproved, OutcomeHold,
		"OLM creates a plan that is already approved although a policy must judge it first"}
	planFrozen = Rule{RulePlanFrozen, OutcomeDeny,
		"the contents of a stored plan are changed by somebody else than OLM"}
	planStatusPhase = Rule{RulePlanStatusPhase, OutcomeDeny,
		"the phase of a plan is written by somebody else than OLM"}
)

// PlanCreateInput is all that judging the creation of an InstallPlan needs. The API server drops the status
// of new objects, so only the spec tells anything.
type PlanCreateInput struct {
	Plan      *olm.InstallPlanHead
	Namespace *Namespace
	// ByOLM reports whether the write comes from OLM's own identity.
	ByOLM bool
}

// NeverRefused tells, before anything is known of the namespace, that a create passes whatever state the gate
// is in: OLM writes a plan that nobody has approved yet. Refusing it stalls the namespace, and it is judged
// when it is approved (threat O4).
func (in *PlanCreateInput) NeverRefused() bool { return in.ByOLM && !in.Plan.Spec.Approved }

// JudgePlanCreate decides on creating an InstallPlan. Only OLM makes plans in a governed namespace: a plan
// forged with the generation that OLM would use next is adopted by it (threat O12). OLM itself is refused
// only where the plan is born approved although a policy must judge it first; refusing any other create
// would stall the whole namespace (threats O3, O4).
func JudgePlanCreate(in PlanCreateInput) Verdict {
	v := Verdict{Object: "installplan " + in.Plan.Metadata.Key()}
	if !in.ByOLM && overrideReason(&in.Plan.Metadata) != "" {
		refuseOverrideReason(&v)
	}
	switch {
	case in.NeverRefused() || !in.Namespace.judged():
	case !in.ByOLM:
		recordForNamespace(&v, in.Namespace, RulePlanCreate, finding{decision: Deny, what: "creating an InstallPlan by hand is not allowed",
			accepted: "OLM creates plans from Subscriptions; create or change one of these"})
	default:
		judgeBornApproved(&in, &v)
	}
	return v.sorted()
}

// judgeBornApproved judges a plan that OLM will run at once. All that is known are names, so a CSV passes
// where every policy of its package would let it pass by name, and an unknown one passes where no
// Subscription of the namespace is under a policy that must judge plans first. A Subscription that is
// switched to Manual makes OLM write the plan anew, and then it is judged with all its contents.
func judgeBornApproved(in *PlanCreateInput, v *Verdict) {
	if in.Namespace.constrained() {
		recordForNamespace(v, in.Namespace, RulePlanBornApproved, finding{decision: Hold, field: "spec.approved",
			what:     "a plan that is approved from the start is held",
			accepted: "set spec.installPlanApproval of the Subscriptions in this namespace to " + olm.ApprovalManual + ", since " + in.Namespace.applicableText()})
		return
	}
	for _, name := range in.Plan.Spec.CSVNames {
		pkg, disputed := in.Namespace.claimed(name)
		if pkg == "" || disputed {
			pkg = in.Namespace.startedBy(name)
		}
		policies := in.Namespace.governing(pkg)
		what := text.Name(name) + " in a plan that is approved from the start is held"
		if pkg == "" {
			policies = in.Namespace.slipped()
			what = text.Name(name) + ", of which the package is not known yet, in a plan that is approved from the start is held"
		}
		for _, p := range policies {
			if mode, because := p.Approval(in.Namespace); mode == olm.ApprovalManual && !p.passesByName(name) {
				v.record(RulePlanBornApproved, p, finding{decision: Hold, field: "spec.approved",
					what:     what,
					accepted: "set spec.installPlanApproval of the Subscriptions to package " + p.Package + " to " + olm.ApprovalManual + ", since " + because})
			}
		}
	}
}

// startedBy returns the package of the Subscription whose startingCSV this is.
func (n *Namespace) startedBy(csv string) string {
	for _, s := range n.subscriptions {
		if s.Spec.StartingCSV == csv {
			return s.Spec.Package
		}
	}
	return ""
}

// slipped lists the enforcing policies that want Manual and whose package somebody subscribes to: from there a
// plan that is born approved may come. That the Subscription is Manual by now does not matter. OLM makes no such
// plan beside a Manual Subscription, so it has read this one before somebody, most likely the loop, changed it.
func (n *Namespace) slipped() []*Policy {
	var found []*Policy
	for _, p := range n.enforced {
		if mode, _ := p.Approval(n); mode != olm.ApprovalManual {
			continue
		}
		if len(n.subscribers(p.Package)) > 0 {
			found = append(found, p)
		}
	}
	return found
}

// passesByName reports whether a policy lets a CSV through whatever else the plan would say of it.
func (p *Policy) passesByName(csv string) bool {
	return !p.MustNotHave && p.faults == "" && p.Pending == "" && p.ApproveUpgrades && p.Catalog.Name == "" && p.Catalog.Namespace == "" &&
		p.versionRange == nil && (p.lists(csv) || p.namesStart(csv))
}

// PlanUpdateInput is all that judging an update of an InstallPlan's main resource needs.
type PlanUpdateInput struct {
	// New is the object as it would be stored; its status is the stored one, so it is not read.
	New *olm.InstallPlanHead
	// Old is the stored object.
	Old       *olm.InstallPlan
	Namespace *Namespace
	// Interrupt is that of PlanInput.
	Interrupt <-chan struct{}
}

// JudgePlanUpdate decides on an update of an InstallPlan: setting spec.approved gets the full verdict,
// whoever does it, cluster admins and OLM included; what the plan holds does not change (threat O2).
func JudgePlanUpdate(in PlanUpdateInput) Verdict {
	v := Verdict{Object: "installplan " + in.Old.Metadata.Key()}
	if in.New.Spec.Approved && !in.Old.Spec.Approved {
		approval := JudgePlan(PlanInput{Plan: in.Old, Namespace: in.Namespace, Interrupt: in.Interrupt})
		v.CSVs = approval.CSVs
		v.Warnings = append(v.Warnings, approval.Warnings...)
		for _, r := range approval.Reasons {
			v.refuse(r)
		}
	}
	if in.Namespace.judged() {
		in.judgeFrozen(&v)
	}
	if in.overrideReasonAdded() && (v.Decision == Allow || in.OverrideAsked() == "") {
		refuseOverrideReason(&v)
	}
	return v.sorted()
}

func (in *PlanUpdateInput) judgeFrozen(v *Verdict) {
	if !slices.Equal(in.New.Spec.CSVNames, in.Old.Spec.CSVNames) {
		frozen(v, in.Namespace, "spec.clusterServiceVersionNames")
	}
	if in.New.Spec.Approval != in.Old.Spec.Approval {
		frozen(v, in.Namespace, "spec.approval")
	}
	if in.New.Spec.Generation != in.Old.Spec.Generation {
		frozen(v, in.Namespace, "spec.generation")
	}
}

func frozen(v *Verdict, ns *Namespace, field string) {
	recordForNamespace(v, ns, RulePlanFrozen, finding{decision: Deny, field: field,
		what: "changing " + field + " is not allowed", accepted: "what a plan holds is what was judged; OLM writes a new plan when there is something new"})
}

// PlanStatusInput is all that judging a write to an InstallPlan's status needs.
type PlanStatusInput struct {
	New, Old  *olm.InstallPlan
	Namespace *Namespace
	// ByOLM reports whether the write comes from OLM's own identity.
	ByOLM bool
	// Interrupt is that of PlanInput.
	Interrupt <-chan struct{}
}

// NeverRefused tells, before anything is known of the namespace, that a write passes whatever state the gate
// is in: OLM's writes of status always do, since a refused one leaves an orphan plan (threat O4).
func (in *PlanStatusInput) NeverRefused() bool { return in.ByOLM }

// JudgePlanStatusUpdate decides on a write to an InstallPlan's status. Everybody but OLM may neither change what the plan will write nor move its
// phase, since OLM runs whatever is in phase Installing without looking at spec.approved (threats O1, O2).
// The one move let through is from RequiresApproval to Installing, for a plan that is approved and may be.
func JudgePlanStatusUpdate(in PlanStatusInput) Verdict {
	v := Verdict{Object: "installplan " + in.Old.Metadata.Key()}
	if in.NeverRefused() || !in.Namespace.judged() {
		return v
	}
	if !slices.Equal(in.New.Status.BundleLookups, in.Old.Status.BundleLookups) {
		frozen(&v, in.Namespace, "status.bundleLookups")
	}
	if !slices.EqualFunc(in.New.Status.Steps, in.Old.Status.Steps, olm.SameStep) {
		frozen(&v, in.Namespace, "status.plan")
	}
	if in.New.Status.InstalledAt() != in.Old.Status.InstalledAt() {
		frozen(&v, in.Namespace, "status.conditions") // it shows which definitions the plan created (threat O19)
	}
	if in.New.Status.ServiceAccount != in.Old.Status.ServiceAccount {
		frozen(&v, in.Namespace, "status.attenuatedServiceAccountRef")
	}
	from, to := in.Old.Status.Phase, in.New.Status.Phase
	if from == to {
		return v.sorted()
	}
	accepted := "only OLM moves the phase of a plan"
	if to == olm.PhaseInstalling {
		approval := JudgePlan(PlanInput{Plan: in.Old, Namespace: in.Namespace, Interrupt: in.Interrupt})
		switch {
		case approval.Decision != Allow:
			for _, r := range approval.Reasons {
				v.refuse(r)
			}
		case in.Old.Spec.Approved && from == olm.PhaseRequiresApproval:
			return v.sorted()
		case in.Old.Spec.Approved: // a plan that has run is not run again by hand
		default:
			accepted = "set spec.approved instead, then OLM starts the plan"
		}
	}
	recordForNamespace(&v, in.Namespace, RulePlanStatusPhase, finding{decision: Deny, field: "status.phase",
		what: "changing status.phase from " + text.Quote(from) + " to " + text.Quote(to) + " is not allowed", accepted: accepted})
	return v.sorted()
}
