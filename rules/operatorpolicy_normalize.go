package rules

import (
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
)

// RuleOperatorPolicyNormalized is on fields with deprecated names.
const RuleOperatorPolicyNormalized verdict.RuleID = "operatorpolicy/normalized"

var operatorPolicyNormalized = verdict.Rule{ID: RuleOperatorPolicyNormalized, Outcomes: verdict.Warns,
	Summary: "values were copied from the earlier field name to the present one"}

// NormalizeOperatorPolicy fills complianceConfig. It keeps the author's fields unchanged, so that GitOps tools see no
// drift.
func NormalizeOperatorPolicy(op, old *policyv1beta2.OperatorPolicy) []verdict.Change {
	filled, copied := operatorpolicy.FilledConfig(op, old)
	if filled == op.Spec.ComplianceConfig {
		return nil
	}
	change := verdict.Change{Rule: RuleOperatorPolicyNormalized, Path: "/spec/complianceConfig", Value: filled}
	if copied {
		change.Message = verdict.Sentence(
			"spec.statusConfig is the earlier name of spec.complianceConfig and was copied "+
				"there",
			RuleOperatorPolicyNormalized, "write spec.complianceConfig with Compliant or NonCompliant")
	}
	return []verdict.Change{change}
}
