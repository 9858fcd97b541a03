package state

import (
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
)

// Approval returns the installPlanApproval that a Subscription under a policy must have in the namespace, and why.
// With Automatic OLM approves by itself, so it is right only if every version and every upgrade is allowed.
func (n *Namespace) Approval(p *operatorpolicy.Policy) (mode, because string) {
	if because, manual := p.WantsManual(); manual {
		return olm.ApprovalManual, because
	}
	if n.Constrained() || n != nil && n.judging != nil {
		return olm.ApprovalManual, n.JudgeText()
	}
	if c := n.NotUpgradeable(p.Package, ""); c != nil {
		return olm.ApprovalManual, text.Name(c.Name) + " is not upgradeable now"
	}
	return olm.ApprovalAutomatic, "spec.upgradeApproval is Automatic and every version is allowed"
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
