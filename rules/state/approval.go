package state

import (
	"slices"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/verdict"
)

// Approval returns the installPlanApproval that a Subscription under this policy must have in a namespace, and why.
// With Automatic OLM approves by itself, so it is right only if every version and every upgrade is allowed (R-OP-11).
func (p *OperatorPolicy) Approval(ns *Namespace) (mode, because string) {
	if because, manual := p.wantsManual(); manual {
		return olm.ApprovalManual, because
	}
	if ns.Constrained() || ns != nil && ns.judging != nil {
		return olm.ApprovalManual, ns.JudgeText()
	}
	if c := ns.NotUpgradeable(p.Package, ""); c != nil {
		return olm.ApprovalManual, text.Name(c.CSV) + " is not upgradeable now"
	}
	return olm.ApprovalAutomatic, "spec.upgradeApproval is Automatic and every version is allowed"
}

// judgesPlans reports whether a policy has to judge every plan of its namespace, since any of them may bring the
// package as a dependency (threat O52). It is known only once the policy is completed.
func (p *OperatorPolicy) judgesPlans() bool {
	_, manual := p.wantsManual()
	return p.Enforced && !p.Incomplete && (p.Package != "" || p.AnyPackage) && manual
}

// judgedPart is a part of a policy for which its plans have to be judged.
type judgedPart struct {
	is func(*OperatorPolicy) bool
	// because says what it is.
	because string
	// named is set if it depends on nothing but the name of a ClusterServiceVersion.
	named bool
}

// judgedParts are all of them: with one, in any namespace, OLM must not approve by itself. A field that may hold plans
// stands here and nowhere else.
var judgedParts = []judgedPart{
	{func(p *OperatorPolicy) bool { return p.faults != "" }, "the policy cannot be read", false},
	{func(p *OperatorPolicy) bool { return p.Pending != "" }, "the policy waits for what it depends on", false},
	{func(p *OperatorPolicy) bool { return len(p.Versions.Entries) > 0 }, "spec.versions is set", true},
	{func(p *OperatorPolicy) bool { return p.VersionRange != nil }, "spec.versionRange is set", false},
	{func(p *OperatorPolicy) bool { return p.MustNotHave }, "the policy is mustnothave", false},
	{func(p *OperatorPolicy) bool { return !p.ApproveUpgrades }, "spec.upgradeApproval is not Automatic", false},
	{func(p *OperatorPolicy) bool { return p.HoldDeprecated }, "spec.deprecated is Hold", false},
	{func(p *OperatorPolicy) bool { return p.Consent.Holds() }, "spec.consent holds changes", false},
	{func(p *OperatorPolicy) bool { return p.CatalogImages.Holds() }, "spec.catalog holds plans", false},
	{func(p *OperatorPolicy) bool { return p.Calendar.Restricts() }, "spec.approvalWindows or spec.freezes is set",
		false},
	{func(p *OperatorPolicy) bool { return p.Age.Holds() }, "spec.minimumAge is set", false},
}

// wantsManual reports whether the policy alone, in any namespace, wants installPlanApproval Manual, and why.
func (p *OperatorPolicy) wantsManual() (because string, manual bool) {
	for i := range judgedParts {
		if judgedParts[i].is(p) {
			return judgedParts[i].because, true
		}
	}
	return "", false
}

// PassesByName reports whether a policy allows a CSV by its name alone, and so with any contents.
func (p *OperatorPolicy) PassesByName(csv string) bool {
	if slices.ContainsFunc(judgedParts, func(part judgedPart) bool { return !part.named && part.is(p) }) {
		return false
	}
	return p.Catalog == (olm.Catalog{}) && !p.Versions.Binds(csv) && (p.Versions.Lists(csv) || p.NamesStart(csv))
}

// JudgeText names what requires plans of a namespace to be judged.
func (n *Namespace) JudgeText() string {
	source, found := n.FirstJudge()
	if !found {
		return ""
	}
	return "each plan has to be judged by " + source.String() + " first"
}

// FirstJudge returns what has to judge each plan of a namespace before OLM runs it: a Constraint that may refuse
// something here, or a policy.
func (n *Namespace) FirstJudge() (source verdict.PolicyRef, found bool) {
	if source, found = n.firstApplicable(); !found && n != nil && n.judging != nil {
		return n.judging.Ref(), true
	}
	return source, found
}
