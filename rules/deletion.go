package rules

import (
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules on deletions (R-RM-4). The API server alone judges these (package backstop): a webhook that fails closed
// would in an outage keep OLM from deleting what it has replaced, and namespaces from going.
const (
	RuleDeletionDenied      verdict.RuleID = "deletion/denied"
	RuleDeletionUnconfirmed verdict.RuleID = "deletion/unconfirmed"
)

var (
	deletionDenied = verdict.Rule{ID: RuleDeletionDenied, Outcomes: verdict.Denies, Backstop: true,
		Summary: "what belongs to a governed operator is deleted, and the policy's deletion is Deny"}
	deletionUnconfirmed = verdict.Rule{ID: RuleDeletionUnconfirmed, Outcomes: verdict.Holds, Backstop: true,
		Summary: "what belongs to a governed operator is deleted without a confirmation, and the policy's deletion is Confirm"}
)

// KeptBy returns the first enforced policy that denies the deletion of what is installed of a package: because of it a
// mustnothave policy removes nothing. It returns nil if there is none; the policy itself counts.
func (n *Namespace) KeptBy(pkg string) *OperatorPolicy {
	for _, p := range n.governing(pkg) {
		if p.Deletion == policyv1beta2.DeletionDeny {
			return p
		}
	}
	return nil
}

// previewDeletion warns of a policy that restricts deletions, and of which nothing is refused.
func previewDeletion(in *OperatorPolicyInput, p *OperatorPolicy, preview func(id verdict.RuleID, what, more string)) {
	spec := &in.Policy.Spec
	if spec.Deletion == "" || spec.Deletion == policyv1beta2.DeletionAllow {
		return
	}
	what := "spec.deletion " + string(spec.Deletion) + " refuses no deletion"
	switch {
	case !p.Enforced:
		preview(RuleOperatorPolicyIneffective, what+" while the policy only informs",
			"write spec.remediationAction: enforce")
	case in.Unbacked != "":
		preview(RuleOperatorPolicyIneffective, what, in.Unbacked)
	}
	if p.Enforced && p.MustNotHave && p.Deletion == policyv1beta2.DeletionDeny {
		preview(RuleOperatorPolicyIneffective,
			"the policy is mustnothave and removes nothing while spec.deletion is Deny",
			"write spec.deletion: Allow to have the operator removed")
	}
}
