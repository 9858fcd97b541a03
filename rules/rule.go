package rules

import (
	"slices"
	"strings"
)

// RuleID names a rule in messages, metrics, documentation and tests. The part before the slash is the kind of object
// that is judged, "bundle" for what an object of any kind brings, "deletion" for the end of one, or "gate" where no policy is read at all;
// policy/unreadable alone is about another kind, the OperatorPolicy that should judge. The constant of a rule spells
// its ID: RuleBundleVersion is bundle/version.
type RuleID string

// OfGate reports whether a rule is about the gate or the review, not about the object.
func (id RuleID) OfGate() bool { return strings.HasPrefix(string(id), "gate/") }

// Outcome is the effect of a rule under an enforcing policy. Under an informing policy it is always a warning.
type Outcome string

// The outcomes.
const (
	// OutcomeDeny refuses for as long as the policy exists.
	OutcomeDeny Outcome = "Deny"
	// OutcomeHold refuses until something else has happened.
	OutcomeHold Outcome = "Hold"
	// OutcomeWarn never refuses.
	OutcomeWarn Outcome = "Warn"
)

// Outcomes are the possible effects of a rule, the most common first.
type Outcomes []Outcome

// String returns them as a list.
func (o Outcomes) String() string {
	words := make([]string, len(o))
	for i := range o {
		words[i] = string(o[i])
	}
	return strings.Join(words, ",")
}

var (
	deny       = Outcomes{OutcomeDeny}
	hold       = Outcomes{OutcomeHold}
	warn       = Outcomes{OutcomeWarn}
	denyOrHold = Outcomes{OutcomeDeny, OutcomeHold}
	denyOrWarn = Outcomes{OutcomeDeny, OutcomeWarn}
	holdOrWarn = Outcomes{OutcomeHold, OutcomeWarn}
	anyOutcome = Outcomes{OutcomeDeny, OutcomeHold, OutcomeWarn}
)

// Rule is all that is known of one rule apart from how it judges: commands, documentation, the table of the API server
// and tests read it here.
type Rule struct {
	ID       RuleID
	Outcomes Outcomes
	// Summary is one sentence: when the rule applies.
	Summary string
	// Override reports whether a user with the verb override may set it aside (R-AP-6). That is so for rules on what a
	// plan brings and an OperatorGroup changes, not for those that protect judged contents from changes.
	Override bool
	// Backstop reports whether the API server itself holds a part of it as well (package backstop).
	Backstop bool
	// Edit proposes the edit of a policy that ends a refusal; nil if none does.
	Edit Edit
}

// The rules of each kind, in reading order. A rule is declared beside the function that judges it: search for its ID.
// Each has a line in docs/rules.md and, except for those of the gate itself, a sample in manifests/samples and a
// scenario in e2e/scenarios; tests keep the four consistent.
var (
	gateRules = []Rule{gateNotReady, gateStale, gateUnreadable, gateUnexpected, gateOLMIdentity, gateInternal}
	// sharedRules are on the OperatorPolicy that governs an object of any kind.
	sharedRules       = []Rule{policyUnreadable}
	subscriptionRules = []Rule{
		subscriptionPackage, subscriptionMustNotHave, subscriptionCatalog, subscriptionChannel,
		subscriptionStartingCSV, subscriptionConfig, subscriptionOverride, subscriptionApproval, subscriptionContradiction, subscriptionConstraint,
		subscriptionUnknownCSV, subscriptionDuplicate, subscriptionOwnerConflict, subscriptionOlderChannel,
		subscriptionUnknownChannel, subscriptionHeldPlan,
	}
	// bundleRules are on what is installed, whatever brings it: a plan, a ClusterServiceVersion, or a step of a plan.
	bundleRules = []Rule{
		bundleMustNotHave, bundleCatalog, bundleVersion, bundleVersionRange, bundleUnknown, bundleConstraint,
		bundleDependencyPending, bundleUpgrade, bundleChannel, bundleDeprecated, bundleCatalogDigest, bundleCatalogJump,
		bundleApprovalWindow, bundleConsent, bundleContents, bundleOwnConstraint, bundleKubeVersion, bundleOpenShiftVersion, bundleNotUpgradeable,
	}
	planRules = []Rule{
		planPhase, planCreate, planBornApproved, planFrozen, planStatusPhase, planOverride, planOverrideReason, planConsentRight,
	}
	csvRules           = []Rule{csvFrozen, csvVirtualOperator}
	catalogSourceRules = []Rule{catalogSourceConstraint}
	operatorGroupRules = []Rule{
		operatorGroupSecond, operatorGroupScope, operatorGroupServiceAccount, operatorGroupUpgradeStrategy, operatorGroupConstraint,
		operatorGroupOverride, operatorGroupSeveralTargets,
	}
	// deletionRules are on deletions of objects of several kinds.
	deletionRules       = []Rule{deletionDenied, deletionUnconfirmed}
	operatorPolicyRules = []Rule{
		operatorPolicyField, operatorPolicyUnknownField, operatorPolicyContradiction, operatorPolicyNormalized,
		operatorPolicyIneffective, operatorPolicyOverlap, operatorPolicyUncovered, operatorPolicyPending,
		operatorPolicySeveralTargets, operatorPolicyLookup,
	}
	constraintRules = []Rule{
		constraintField, constraintSyntax, constraintSize, constraintRule, constraintProperty, constraintIneffective,
		constraintViolated,
	}
	policyRules = []Rule{
		policyField, policyDependencyConflict, policyDependencyDuplicate, policyDependencyCycle,
		policyDependencyNamespace, policyEscalation, policyDependencyAccess, policyTemplate,
	}
	policySetRules = []Rule{policySetDependencyCycle}
)

// GateRules returns the rules by which the gate refuses before any policy is read.
func GateRules() []Rule { return slices.Clone(gateRules) }

// RuleOf returns the rule with an ID; the zero value if there is none.
func RuleOf(id RuleID) Rule {
	for _, r := range slices.Concat(gateRules, Rules()) {
		if r.ID == id {
			return r
		}
	}
	return Rule{}
}

// Rules returns every rule of policies and Constraints, in reading order. The caller may keep the slice.
func Rules() []Rule {
	return slices.Concat(sharedRules, subscriptionRules, bundleRules, planRules, csvRules, catalogSourceRules, operatorGroupRules, deletionRules, operatorPolicyRules, constraintRules, policyRules, policySetRules)
}
