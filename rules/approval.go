package rules

import (
	"cmp"
	"slices"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// UngovernedMode is what the background loop does about operators that no policy governs in a namespace where a policy
// makes OLM wait for approval: one Manual Subscription holds all plans of a namespace.
type UngovernedMode string

const (
	// ApproveUngoverned approves if their Subscription requested Automatic: alone in the namespace, OLM would have
	// approved it.
	ApproveUngoverned UngovernedMode = "approve"
	// HoldUngoverned leaves the approval to users.
	HoldUngoverned UngovernedMode = "hold"
)

// UngovernedIn returns the mode in a namespace with some annotations. An unknown value counts as HoldUngoverned.
func UngovernedIn(annotations map[string]string, otherwise UngovernedMode) UngovernedMode {
	return cmp.Or(UngovernedMode(annotations[metakey.Ungoverned]), otherwise)
}

// ApprovalInput is the input of JudgeApproval.
type ApprovalInput struct {
	// Plan is a plan in Namespace, with its stored status.
	Plan       *olm.InstallPlan
	Namespace  *state.Namespace
	Ungoverned UngovernedMode
	// Now is that of PlanInput.
	Now time.Time
}

// Approval reports whether the loop should approve a plan.
type Approval struct {
	// IsCandidate reports whether the plan waits for approval: it requires approval, a Subscription names it as its
	// current plan, and a part of it is not installed yet. Other plans are outdated: approving one of them would
	// downgrade an operator.
	IsCandidate bool
	// Verdict is that of JudgePlan: a plan that may not be approved should not be.
	Verdict verdict.Verdict
	// Blockers are full sentences, on each ClusterServiceVersion that prevents the approval.
	Blockers []string
}

// Should reports whether the loop should approve the plan.
func (a *Approval) Should() bool {
	return a.IsCandidate && a.Verdict.Decision == verdict.Allow && len(a.Blockers) == 0
}

// Note returns why the loop does not approve a plan, as Verdict.Note does.
func (a *Approval) Note() string { return verdict.Note(a.Why()) }

// Why returns why the loop does not approve the plan: what refuses it, as at admission, then the ClusterServiceVersions
// that are not wanted for another reason.
func (a *Approval) Why() []verdict.Reason {
	why := slices.Clone(a.Verdict.Reasons)
	for _, blocker := range a.Blockers {
		if !slices.ContainsFunc(why, func(r verdict.Reason) bool { return r.Message == blocker }) {
			why = append(why, verdict.Reason{Message: blocker})
		}
	}
	return why
}

// JudgeApproval decides whether the loop should approve a plan: every ClusterServiceVersion in it must be wanted: by a
// policy that allows it, by a wanted operator that requires it, or, if so configured, by another Subscription that
// requested Automatic.
func JudgeApproval(in ApprovalInput) Approval {
	// Where neither a policy nor a Constraint makes OLM wait, Subscriptions are Manual because users want to approve
	// themselves.
	a := Approval{IsCandidate: requiresManual(in.Namespace) && in.Namespace.Waits(in.Plan)}
	if !a.IsCandidate {
		return a
	}
	j := bundle.NewPlan(PlanInput{Plan: in.Plan, Namespace: in.Namespace, Now: in.Now})
	a.Verdict = judgePlan(j)
	unwanted := make([]string, len(a.Verdict.CSVs))
	var queue []int
	for i := range a.Verdict.CSVs {
		if unwanted[i] = in.unwanted(&a.Verdict.CSVs[i]); unwanted[i] == "" {
			queue = append(queue, i)
		}
	}
	carrier.AlongRequired(j.Bundles, queue, func(i, _ int) bool {
		c := &a.Verdict.CSVs[i]
		if unwanted[i] == "" || c.Disposition > verdict.Allowed || c.Disposition == verdict.Allowed && in.idle(c) != "" {
			return false
		}
		unwanted[i] = ""
		return true
	})
	a.Blockers = slices.DeleteFunc(unwanted, func(why string) bool { return why == "" })
	return a
}

// MayHaveCandidates reports whether the loop may have to approve plans in a namespace: it has policies, or a Constraint
// makes OLM wait.
func MayHaveCandidates(ns *state.Namespace) bool { return ns.Governed() || requiresManual(ns) }

// requiresManual reports whether a policy or a Constraint makes OLM wait for approval in this namespace.
func requiresManual(n *state.Namespace) bool {
	if slices.ContainsFunc(n.Enforcing(), func(p *operatorpolicy.Policy) bool {
		mode, _ := n.Approval(p)
		return mode == olm.ApprovalManual || n.Subscribed(p)
	}) {
		return true
	}
	return slices.ContainsFunc(n.Subscriptions(), turnedManual) && !slices.ContainsFunc(n.Subscriptions(), waitsForUser)
}

// waitsForUser reports whether a Subscription is Manual because its user wants to approve.
func waitsForUser(s *olm.Subscription) bool { return !wantsAutomatic(s) }

// turnedManual reports whether a Subscription is Manual only because Opgate changed it.
func turnedManual(s *olm.Subscription) bool {
	return s.Spec.InstallPlanApproval == olm.ApprovalManual && wantsAutomatic(s)
}

// removal returns, as text, which installed CSV of a package a policy removes, and with it the Subscription: nothing is
// upgraded meanwhile. It is "" for none.
func removal(n *state.Namespace, pkg string, now time.Time) string {
	for _, p := range n.Governing(pkg) {
		if !p.Enforced || !p.MustNotHave || p.Unreadable() != "" ||
			p.Object != nil && p.Object.Spec.RemovalBehavior.Subscriptions == policyv1beta2.RemovalKeep {
			continue
		}
		for _, c := range n.Installed() {
			if match, _ := bundle.Forbids(p, c.Name, c.Version, c.Catalog, now); match && c.Package == pkg {
				return text.Name(c.Name) + ", which is installed, is removed by " + p.Source()
			}
		}
	}
	return ""
}

// approvesAll reports whether an enforced policy approves all that it allows of a package, whatever its Subscriptions
// ask for.
func approvesAll(n *state.Namespace, pkg string) bool {
	return slices.ContainsFunc(n.Governing(pkg), approvesAllowed)
}

func approvesAllowed(p *operatorpolicy.Policy) bool {
	return p.Enforced && !p.AnyPackage && p.Object != nil &&
		p.Object.Spec.EffectivePlanApproval() == policyv1beta2.PlanApprovalIfAllowed
}

// approveRight returns the right to approve the plans of a namespace, "" for any.
func approveRight(namespace string) dependency.Right {
	return dependency.Right{Verb: "update", Group: olm.Group, Resource: "installplans", Namespace: namespace}
}

// idle returns why the policies that allow a CSV do not act, or "".
func (in *ApprovalInput) idle(c *verdict.CSV) string {
	if drifted := in.Namespace.DriftedOf(c.Package); drifted != "" {
		return text.Name(drifted) + ", which is installed, differs from what its InstallPlan installed"
	}
	overlap := Overlapping(in.Namespace, c.Package)
	for _, p := range in.Namespace.Governing(c.Package) {
		switch {
		case !p.Enforced:
		case p.Incomplete:
			return p.Source() + " is not completed yet"
		case len(overlap) > 1:
			return "the policies for package " + c.Package + " overlap, so that none of them acts"
		case len(p.Invalid) > 0:
			return p.Source() + " is not valid: " + p.Invalid[0].Error()
		}
	}
	return ""
}

// Overlapping returns the enforced policies of a package, sorted by namespace and name. If there is more than one, none
// of them acts: each would revert the changes of the others. One that does not show what it governs changes nothing.
func Overlapping(ns *state.Namespace, pkg string) []*operatorpolicy.Policy {
	var enforced []*operatorpolicy.Policy
	for _, p := range ns.Governing(pkg) {
		if p.Enforced && !p.AnyPackage && !p.AnyNamespace {
			enforced = append(enforced, p)
		}
	}
	return enforced
}

// unwanted returns why a CSV is not wanted for itself, as a full sentence; "" if it is. Overlapping or invalid policies do
// not act, approving included; they still refuse. Unless a policy approves all that it allows, users approve for a
// Subscription that they made Manual.
func (in *ApprovalInput) unwanted(c *verdict.CSV) string {
	if len(c.Because) > 0 {
		return c.Because[0]
	}
	allowed, ungoverned := c.Disposition == verdict.Allowed, c.Disposition == verdict.Ungoverned
	subscribers, why := in.Namespace.Subscribers(c.Package), standing(in.Namespace, c)
	switch {
	case allowed && in.idle(c) != "":
		why = in.idle(c)
	case ungoverned && removal(in.Namespace, c.Package, in.Now) != "":
		why = removal(in.Namespace, c.Package, in.Now)
	case c.Disposition == verdict.Required:
		why = text.Name(c.By[0]) + ", which requires it, is held"
	case allowed && (len(subscribers) == 0 || approvesAll(in.Namespace, c.Package)):
		return ""
	case len(subscribers) == 0:
		why += ", and nothing that is allowed requires it"
	case !slices.ContainsFunc(subscribers, wantsAutomatic):
		why += ", and its Subscription asks for Manual approval, so that a user has to approve it, who needs the right to " +
			approveRight(in.Namespace.Name()).String() + "; with " + letsApprove + " Opgate does"
	case allowed, ungoverned && in.Ungoverned == ApproveUngoverned:
		return ""
	default:
		why += ", and operators that no policy wants wait for manual approval (ungoverned: " + string(HoldUngoverned) +
			")"
		if judge := in.Namespace.JudgeText(); judge != "" {
			why += "; its Subscription is Manual, since " + judge
		}
	}
	return text.Name(c.CSV) + " is held: " + why
}

// standing returns what policies say of a CSV that none of them refuses.
func standing(n *state.Namespace, c *verdict.CSV) string {
	for _, p := range n.Governing(c.Package) {
		switch {
		case !p.Enforced:
		case p.MustNotHave:
			return p.Source() + " does not forbid it"
		default:
			return p.Source() + " allows it"
		}
	}
	if len(n.Governing(c.Package)) > 0 {
		return "no enforced policy governs package " + text.Name(c.Package)
	}
	return "no policy governs package " + text.Name(c.Package)
}

// StaleInput is the input of Stale.
type StaleInput struct {
	// Plan is a plan in Namespace, with its stored status.
	Plan      *olm.InstallPlan
	Namespace *state.Namespace
	// Packages returns what catalogs have. Default: what plans of the namespace are judged by.
	Packages state.Packages
	// CatalogsCurrent is set once catalogs that lag behind OLM surely have every version of the plan.
	CatalogsCurrent bool
}

// Stale returns, as a sentence, why a plan that waits cannot be what its Subscriptions ask for any more; "" if it can.
// OLM resolves nothing new in a namespace while a plan waits: it has to be deleted before OLM plans again.
func Stale(in StaleInput) string {
	if !in.Namespace.Waits(in.Plan) {
		return ""
	}
	csvs := carrier.OfPlan(in.Plan, in.Namespace)
	for i := range csvs {
		for _, s := range in.Namespace.Subscribers(csvs[i].Package) {
			if s.Status.InstallPlan.Name != in.Plan.Metadata.Name {
				continue
			}
			if why := in.unlike(&csvs[i], s); why != "" {
				return why
			}
		}
	}
	return in.orphan(csvs)
}

// unlike returns why a ClusterServiceVersion of the plan is not what a Subscription asks for.
func (in *StaleInput) unlike(c *carrier.Bundle, s *olm.Subscription) string {
	name, sub, start := text.Name(c.Name), "Subscription "+text.Name(s.Metadata.Name), s.Spec.StartingCSV
	if start != "" && start != c.Name && !in.Namespace.Installs(s.Status.InstalledCSV) {
		return "it installs " + name + ", and " + sub + " starts with " + text.Name(start)
	}
	pkg := in.Namespace.PackageOf(c.Package, s.Catalog())
	if in.Packages != nil {
		pkg = in.Packages(c.Package, c.Name, s.Catalog())
	}
	if pkg == nil || len(pkg.Channels) == 0 {
		return ""
	}
	channel := pkg.Channel(s.Spec.Channel)
	// without a channel OLM takes any
	if channel != nil && channel.Has(c.Name) || s.Spec.Channel == "" && pkg.Has(c.Name) {
		return ""
	}
	if !in.CatalogsCurrent && !pkg.Has(c.Name) && slices.Contains(c.Catalogs, s.Catalog()) {
		return "" // the package server may not know it yet
	}
	return "it installs " + name + ", which channel " + text.Name(s.Spec.Channel) + " of catalog " +
		text.Name(s.Spec.SourceNamespace) + "/" +
		text.Name(s.Spec.Source) + " does not have, and " + sub + " follows that"
}

// orphan returns why the plan brings a package that nothing asks for. What requires it may be in the plan or installed.
func (in *StaleInput) orphan(csvs []carrier.Bundle) string {
	planned := len(csvs)
	for _, c := range in.Namespace.Installed() {
		csvs = append(csvs, carrier.Bundle{Bundle: c.Bundle})
	}
	wanted := make([]bool, len(csvs))
	var queue []int
	for i := range csvs {
		if !csvs[i].Described || csvs[i].Package == "" || constraint.BringsOwn(csvs[i].Properties) {
			return "" // what it is, or requires, is not known
		}
		if wanted[i] = i >= planned || len(in.Namespace.Subscribers(csvs[i].Package)) > 0; wanted[i] {
			queue = append(queue, i)
		}
	}
	carrier.AlongRequired(csvs, queue, func(i, _ int) bool {
		entered := !wanted[i]
		wanted[i] = true
		return entered
	})
	i := slices.Index(wanted, false)
	if i < 0 {
		return ""
	}
	return "it installs " + text.Name(csvs[i].Name) + " of package " + text.Name(csvs[i].Package) +
		", which has no Subscription and which nothing requires"
}

// StaleAdvice returns what to do about a stale plan, as a sentence.
func StaleAdvice(plan *olm.InstallPlan, why string) string {
	return "the InstallPlan " + text.Name(plan.Metadata.Name) + " is stale: " + why +
		"; delete it (kubectl delete installplan " +
		text.Name(plan.Metadata.Name) + " -n " + text.Name(plan.Metadata.Namespace) + "), and OLM creates a new one"
}
