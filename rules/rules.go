package rules

import (
	"slices"

	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/verdict"
)

// The rules of each kind, in reading order. A rule is declared beside the function that judges it: search for its ID.
// Each has a line in docs/rules.md and, except for those of the gate itself, a sample in manifests/samples and a
// scenario in e2e/scenarios; tests keep the four consistent.
var (
	gateRules = []verdict.Rule{gateNotReady, gateStale, gateUnreadable, gateUnexpected, gateOLMIdentity,
		gateInternal}
	subscriptionRules = []verdict.Rule{
		subscriptionPackage, subscriptionMustNotHave, subscriptionCatalog, subscriptionChannel,
		subscriptionStartingCSV, subscriptionConfig, subscriptionOverride, subscriptionApproval,
		subscriptionContradiction,
		subscriptionConstraint,
		subscriptionUnknownCSV, subscriptionDuplicate, subscriptionOwnerConflict, subscriptionOlderChannel,
		subscriptionUnknownChannel, subscriptionHeldPlan,
	}
	planRules = []verdict.Rule{
		planPhase, planCreate, planBornApproved, planFrozen, planStatusPhase, planOverride, planOverrideReason,
		planConsentRight,
	}
	csvRules           = []verdict.Rule{csvFrozen, csvVirtualOperator}
	catalogSourceRules = []verdict.Rule{catalogSourceConstraint}
	operatorGroupRules = []verdict.Rule{
		operatorGroupSecond, operatorGroupScope, operatorGroupServiceAccount, operatorGroupUpgradeStrategy,
		operatorGroupConstraint,
		operatorGroupOverride, operatorGroupSeveralTargets,
	}
	// clusterExtensionRules and clusterCatalogRules are on objects of OLM v1.
	clusterExtensionRules = []verdict.Rule{clusterExtensionPackage, clusterExtensionVersion, clusterExtensionContents,
		clusterExtensionConstraint, clusterExtensionOverride}
	clusterCatalogRules = []verdict.Rule{clusterCatalogConstraint}
	// deletionRules are on deletions of objects of several kinds.
	deletionRules       = []verdict.Rule{deletionDenied, deletionUnconfirmed}
	operatorPolicyRules = []verdict.Rule{
		operatorPolicyField, operatorPolicyUnknownField, operatorPolicyContradiction, operatorPolicyNormalized,
		operatorPolicyIneffective, operatorPolicyOverlap, operatorPolicyUncovered, operatorPolicyPending,
		operatorPolicySeveralTargets, operatorPolicyLookup, operatorPolicyExceptionRight,
		operatorPolicyExceptionEnded,
	}
	constraintRules = []verdict.Rule{
		constraintField, constraintSyntax, constraintSize, constraintRule, constraintProperty, constraintIneffective,
		constraintViolated, constraintExceptionRight, constraintExceptionEnded,
	}
)

// GateRules returns the rules by which the gate refuses before any policy is read.
func GateRules() []verdict.Rule { return slices.Clone(gateRules) }

// RuleOf returns the rule with an ID; the zero value if there is none.
func RuleOf(id verdict.RuleID) verdict.Rule {
	for _, r := range slices.Concat(gateRules, Rules()) {
		if r.ID == id {
			return r
		}
	}
	return verdict.Rule{}
}

// Rules returns every rule of policies and Constraints, in reading order. The caller may keep the slice.
func Rules() []verdict.Rule {
	return slices.Concat(subscriptionRules, bundle.Rules(), planRules, csvRules, catalogSourceRules,
		operatorGroupRules, clusterExtensionRules, clusterCatalogRules, deletionRules, operatorPolicyRules,
		constraintRules, dependency.Rules())
}
