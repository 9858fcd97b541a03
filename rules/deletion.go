package rules

import (
	"iter"
	"slices"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	RuleDeletionDenied      verdict.RuleID = "deletion/denied"
	RuleDeletionUnconfirmed verdict.RuleID = "deletion/unconfirmed"
)

// deletionRules are on deletions of objects of several kinds.
var deletionRules = []verdict.Rule{
	{ID: RuleDeletionDenied, Outcomes: verdict.Denies, Backstop: true,
		Summary: "what belongs to an operator is deleted, and spec.deletion of its policy or of a Constraint is Deny"},
	{ID: RuleDeletionUnconfirmed, Outcomes: verdict.Holds, Backstop: true,
		Summary: "what belongs to an operator is deleted without a confirmation, and spec.deletion of its policy or of a Constraint is Confirm"},
}

// KeptBy returns the field of the first enforced policy, or else of the first Constraint, that denies the deletion of
// what is installed of a package, as "spec.deletion of OperatorPolicy policies/etcd": because of it a mustnothave
// policy removes nothing. It returns "" if there is none; the policy itself counts.
func KeptBy(n *state.Namespace, pkg string) string {
	for _, p := range n.Governing(pkg) {
		if p.Deletion == policyv1beta2.DeletionDeny {
			return "spec.deletion of " + p.Source()
		}
	}
	for _, d := range n.Constraints().Definitions() {
		if denies(d, pkg) {
			return "spec.deletion.action of " + state.ConstraintRef(d).String()
		}
	}
	return ""
}

func denies(d *constraint.Definition, pkg string) bool {
	return d.Deletion.Of(pkg) && d.Deletion.Action == policyv1beta2.DeletionDeny
}

// Keeps returns how many enforced mustnothave policies remove nothing of what is installed, because a Constraint denies
// it.
func Keeps(d *constraint.Definition, namespaces iter.Seq[*state.Namespace]) int {
	kept := 0
	if d.Deletion == nil {
		return kept
	}
	for ns := range namespaces {
		for _, p := range ns.Enforcing() {
			if p.MustNotHave && denies(d, p.Package) && slices.Contains(ns.Operators(), p.Package) {
				kept++
			}
		}
	}
	return kept
}

// judgeDeletion warns of a spec.deletion by which nothing is refused.
func (in *ConstraintInput) judgeDeletion(v *verdict.Verdict) {
	if in.Unbacked != "" && in.Constraint.Spec.EffectiveDeletion() != policyv1beta2.DeletionAllow {
		ineffective(v, "spec.deletion.action",
			"spec.deletion.action "+string(in.Constraint.Spec.Deletion.Action)+" refuses no deletion", in.Unbacked)
	}
}
