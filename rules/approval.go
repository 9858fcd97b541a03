package rules

import (
	"slices"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// UngovernedMode says what the background loop does about operators that no policy governs, where a policy
// makes OLM wait for approval in their namespace: one Manual Subscription holds all plans of a namespace.
type UngovernedMode string

const (
	// ApproveUngoverned approves what asked for Automatic: OLM would have approved it, were it alone.
	ApproveUngoverned UngovernedMode = "approve"
	// HoldUngoverned leaves it to people.
	HoldUngoverned UngovernedMode = "hold"
)

// ApprovalInput is all that deciding about the loop's own approval of a plan needs.
type ApprovalInput struct {
	// Plan is a plan of Namespace, with its stored status.
	Plan       *olm.InstallPlan
	Namespace  *Namespace
	Ungoverned UngovernedMode
}

// Approval answers whether the loop should approve a plan by itself.
type Approval struct {
	// IsCandidate reports whether the plan waits for an approval at all: it asks for one, a Subscription names it as
	// the plan that it follows, and something in it is not installed yet. Others are leftovers, and approving
	// one of them would take an operator back.
	IsCandidate bool
	// Verdict is that of JudgePlan: should implies may.
	Verdict Verdict
	// Blockers are the ClusterServiceVersions that keep the loop from approving.
	Blockers []Blocker
}

// Blocker is a ClusterServiceVersion that keeps a plan from being approved by the loop.
type Blocker struct {
	CSV string
	// Why is a whole sentence.
	Why string
}

// Should reports whether the loop should approve.
func (a *Approval) Should() bool {
	return a.IsCandidate && a.Verdict.Decision == Allow && len(a.Blockers) == 0
}

// JudgeApproval decides whether the loop should approve a plan: every ClusterServiceVersion in it must be
// wanted, by a policy that allows it, by an operator that is wanted and requires it, or, where that is so
// configured, by a neighbour's Subscription that asked for Automatic (R-AP-4).
func JudgeApproval(in ApprovalInput) Approval {
	a := Approval{IsCandidate: in.isCandidate()}
	if !a.IsCandidate {
		return a
	}
	a.Verdict = JudgePlan(PlanInput{Plan: in.Plan, Namespace: in.Namespace})
	csvs := csvsOf(in.Plan, in.Namespace)
	wanted := make([]bool, len(a.Verdict.CSVs))
	var queue []int
	for i := range a.Verdict.CSVs {
		if wanted[i] = in.wants(&a.Verdict.CSVs[i]); wanted[i] {
			queue = append(queue, i)
		}
	}
	alongRequired(csvs, queue, func(i, _ int) bool {
		if wanted[i] || a.Verdict.CSVs[i].Disposition > Required {
			return false
		}
		wanted[i] = true
		return true
	})
	for i := range a.Verdict.CSVs {
		if !wanted[i] {
			a.Blockers = append(a.Blockers, in.blocker(&a.Verdict.CSVs[i]))
		}
	}
	return a
}

// isCandidate leaves namespaces alone in which neither a policy nor a Constraint makes OLM wait: whoever set a
// Subscription to Manual there wants to approve by hand.
func (in *ApprovalInput) isCandidate() bool {
	plan := in.Plan
	if plan.Status.Phase != olm.PhaseRequiresApproval || plan.Spec.Approved || !in.Namespace.requiresManual() {
		return false
	}
	return slices.ContainsFunc(in.Namespace.subscriptions, func(s *olm.Subscription) bool {
		return s.Status.InstallPlan.Name == plan.Metadata.Name
	}) && slices.ContainsFunc(plan.Spec.CSVNames, func(name string) bool {
		return !slices.ContainsFunc(in.Namespace.installed, func(c Installed) bool { return c.CSV == name })
	})
}

// MayHaveCandidates reports whether the loop has anything to do in a namespace: policies are there, or a Constraint makes OLM wait.
func MayHaveCandidates(ns *Namespace) bool { return ns.governed() || ns.requiresManual() }

// requiresManual reports whether it is for a policy, or for a Constraint, that OLM waits for approval here.
func (n *Namespace) requiresManual() bool {
	if n == nil {
		return false
	}
	if slices.ContainsFunc(n.enforced, func(p *Policy) bool {
		mode, _ := p.Approval(n)
		return mode == olm.ApprovalManual || len(n.subscribers(p.Package)) > 0
	}) {
		return true
	}
	byHand := func(s *olm.Subscription) bool { return !wantsAutomatic(s) }
	return slices.ContainsFunc(n.subscriptions, turnedManual) && !slices.ContainsFunc(n.subscriptions, byHand)
}

// turnedManual reports whether a Constraint is why a Subscription is Manual.
func turnedManual(s *olm.Subscription) bool {
	return s.Spec.InstallPlanApproval == olm.ApprovalManual && wantsAutomatic(s)
}

// wants reports whether a CSV is wanted for its own sake. Policies that overlap, or that are not valid, do
// nothing, approving included; they refuse all the same.
func (in *ApprovalInput) wants(c *CSVVerdict) bool {
	if c.Disposition == Allowed {
		return in.idle(c) == ""
	}
	return c.Disposition == Ungoverned && in.Ungoverned == ApproveUngoverned &&
		slices.ContainsFunc(in.Namespace.subscribers(c.Package), wantsAutomatic)
}

// idle says why the policies that allow a CSV do not act, or "".
func (in *ApprovalInput) idle(c *CSVVerdict) string {
	if drifted := in.Namespace.driftedOf(c.Package); drifted != "" {
		return text.Name(drifted) + ", which is installed, is not what its InstallPlan brought"
	}
	overlap := Overlapping(in.Namespace, c.Package)
	for _, p := range in.Namespace.governing(c.Package) {
		switch {
		case !p.Enforced:
		case p.Incomplete:
			return p.Source() + " is not completed yet"
		case len(overlap) > 1:
			return "the policies for package " + c.Package + " overlap, so that none of them acts"
		case p.invalid != "":
			return p.Source() + " is not valid: " + p.invalid
		}
	}
	return ""
}

// Overlapping lists the enforced policies of a package, sorted by namespace and name. Where there is more
// than one, none of them acts: each would undo what another has done.
func Overlapping(ns *Namespace, pkg string) []*Policy {
	var enforced []*Policy
	for _, p := range ns.governing(pkg) {
		if p.Enforced {
			enforced = append(enforced, p)
		}
	}
	return enforced
}

func (in *ApprovalInput) blocker(c *CSVVerdict) Blocker {
	b := Blocker{CSV: c.CSV}
	switch {
	case len(c.Because) > 0:
		b.Why = c.Because[0]
	case c.Disposition == Allowed:
		b.Why = text.Name(c.CSV) + " is held: " + in.idle(c)
	case len(in.Namespace.subscribers(c.Package)) == 0:
		b.Why = text.Name(c.CSV) + " is held: no policy governs package " + text.Name(c.Package) + ", and nothing that is allowed requires it"
	case in.Ungoverned != ApproveUngoverned:
		b.Why = text.Name(c.CSV) + " is held: no policy governs package " + text.Name(c.Package) + ", and operators without a policy are left to people here (ungoverned: hold)"
	default:
		b.Why = text.Name(c.CSV) + " is held: no policy governs package " + text.Name(c.Package) + ", and its Subscription asks for Manual approval"
	}
	return b
}
