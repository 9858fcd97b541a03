package rules

// RuleID names a rule in messages, metrics, documentation and tests. The part before the slash is the
// kind of object that is judged, or "gate" where no policy is asked at all. policy/unreadable alone is about another kind: there
// the fault lies in the OperatorPolicy that should judge, and not in the object.
type RuleID string

// The rules. Each has a line in docs/rules.md and, but for those of the gate itself, a sample in manifests/samples
// and a scenario in e2e/scenarios; tests hold the four together.
const (
	RuleGateNotReady   RuleID = "gate/not-ready"
	RuleGateUnreadable RuleID = "gate/unreadable"
	RuleGateUnexpected RuleID = "gate/unexpected"
	// RuleGateOLMIdentity goes with another rule, which refuses.
	RuleGateOLMIdentity RuleID = "gate/olm-identity"
	RuleGateInternal    RuleID = "gate/internal"

	RulePolicyUnreadable RuleID = "policy/unreadable"

	RuleSubscriptionPackage       RuleID = "subscription/package"
	RuleSubscriptionMustNotHave   RuleID = "subscription/mustnothave"
	RuleSubscriptionCatalog       RuleID = "subscription/catalog"
	RuleSubscriptionChannel       RuleID = "subscription/channel"
	RuleSubscriptionStartingCSV   RuleID = "subscription/starting-csv"
	RuleSubscriptionApproval      RuleID = "subscription/approval"
	RuleSubscriptionContradiction RuleID = "subscription/contradiction"
	RuleSubscriptionConstraint    RuleID = "subscription/constraint"
	RuleSubscriptionUnknownCSV    RuleID = "subscription/unknown-csv"

	RulePlanMustNotHave  RuleID = "plan/mustnothave"
	RulePlanVersion      RuleID = "plan/version"
	RulePlanVersionRange RuleID = "plan/version-range"
	RulePlanCatalog      RuleID = "plan/catalog"
	RulePlanChannel      RuleID = "plan/channel"
	RulePlanUpgrade      RuleID = "plan/upgrade"
	RulePlanUnknownCSV   RuleID = "plan/unknown-csv"
	RulePlanPhase        RuleID = "plan/phase"
	RulePlanCreate       RuleID = "plan/create"
	RulePlanBornApproved RuleID = "plan/born-approved"
	RulePlanFrozen       RuleID = "plan/frozen"
	RulePlanStatusPhase  RuleID = "plan/status-phase"
	RulePlanOverride     RuleID = "plan/override"

	RulePlanOverrideReason RuleID = "plan/override-reason"

	RulePlanDependency RuleID = "plan/dependency-pending"

	RulePlanConstraint       RuleID = "plan/constraint"
	RulePlanBundleConstraint RuleID = "plan/bundle-constraint"
	RulePlanKubeVersion      RuleID = "plan/kube-version"
	RulePlanOpenShiftVersion RuleID = "plan/openshift-version"

	RuleCSVConstraint      RuleID = "csv/constraint"
	RuleCSVPolicy          RuleID = "csv/policy"
	RuleCSVFrozen          RuleID = "csv/frozen"
	RuleCSVVirtualOperator RuleID = "csv/virtual-operator"

	RulePolicyField         RuleID = "operatorpolicy/field"
	RulePolicyUnknownField  RuleID = "operatorpolicy/unknown-field"
	RulePolicyContradiction RuleID = "operatorpolicy/contradiction"
	RulePolicyNormalized    RuleID = "operatorpolicy/normalized"
	RulePolicyIneffective   RuleID = "operatorpolicy/ineffective"
	RulePolicyOverlap       RuleID = "operatorpolicy/overlap"
	RulePolicyUncovered     RuleID = "operatorpolicy/uncovered"
	RulePolicyPending       RuleID = "operatorpolicy/pending"

	RuleConstraintField       RuleID = "constraint/field"
	RuleConstraintSyntax      RuleID = "constraint/syntax"
	RuleConstraintSize        RuleID = "constraint/size"
	RuleConstraintRule        RuleID = "constraint/rule"
	RuleConstraintProperty    RuleID = "constraint/property"
	RuleConstraintIneffective RuleID = "constraint/ineffective"
	RuleConstraintViolated    RuleID = "constraint/violated"

	RuleParentField     RuleID = "policy/field"
	RuleParentConflict  RuleID = "policy/dependency-conflict"
	RuleParentDuplicate RuleID = "policy/dependency-duplicate"
	RuleParentCycle     RuleID = "policy/dependency-cycle"
	RuleParentNamespace RuleID = "policy/dependency-namespace"
	RuleParentTemplate  RuleID = "policy/template"
	// RuleParentEscalation needs answers of the API server, which package admission asks for.
	RuleParentEscalation RuleID = "policy/escalation"
	// RuleParentAccess needs them as well.
	RuleParentAccess   RuleID = "policy/dependency-access"
	RulePolicySetCycle RuleID = "policyset/dependency-cycle"
)

// Rule describes one rule for readers: `opgate explain`, documentation and tests.
type Rule struct {
	ID RuleID
	// Outcome is what the rule gives when it speaks: Deny or Hold under an enforcing policy (an informing
	// one turns both into a warning), or Warn for rules that never refuse.
	Outcome string
	// Summary is one sentence: when the rule speaks.
	Summary string
}

// GateRules lists the rules by which the gate refuses before any policy is asked.
func GateRules() []Rule {
	return []Rule{
		{RuleGateNotReady, "Hold", "the gate has not read all policies and operators, or verified OLM's identity, yet, a few seconds after its start"},
		{RuleGateUnreadable, "Deny", "the review, or the object in it, cannot be read"},
		{RuleGateUnexpected, "Deny", "the API server asks about an operation or a subresource that this version of the gate does not know"},
		{RuleGateOLMIdentity, "Hold", "the write has OLM's user name, but the account is not trusted as OLM's, so it is judged like any other write"},
		{RuleGateInternal, "Hold", "the gate panicked while it judged; its log has the stack"},
	}
}

// Rules lists every rule on what policies say, in reading order. The caller may keep the slice; it is built anew each time.
func Rules() []Rule {
	return []Rule{
		{RulePolicyUnreadable, "Hold", "the governing policy holds template text or a value that cannot be read, so nothing it governs is let through"},
		{RuleSubscriptionPackage, "Deny", "spec.name of a Subscription to a governed package is changed, so that what it installed would belong to another package"},
		{RuleSubscriptionMustNotHave, "Deny", "a mustnothave policy forbids the package, or the startingCSV, that the Subscription asks for"},
		{RuleSubscriptionCatalog, "Deny", "spec.source or spec.sourceNamespace is not the catalog that the policy names"},
		{RuleSubscriptionChannel, "Deny", "spec.channel is not the channel that the policy names"},
		{RuleSubscriptionStartingCSV, "Deny", "spec.startingCSV is not a version that the policy allows"},
		{RuleSubscriptionApproval, "Deny", "spec.installPlanApproval is not what the policy computes; the mutating webhook changes it, this rule refuses what is still wrong afterwards"},
		{RuleSubscriptionContradiction, "Warn", "spec.startingCSV is set while upgrades are approved automatically, so the operator will not stay at that version"},
		{RuleSubscriptionConstraint, "Deny", "what a Subscription asks for does not satisfy a Constraint, or (Warn) what it will most likely bring will not"},
		{RuleSubscriptionUnknownCSV, "Warn", "the catalog does not offer spec.startingCSV in the channel, so OLM would wait for it without a word"},
		{RulePlanMustNotHave, "Deny", "a mustnothave policy forbids a ClusterServiceVersion of the plan"},
		{RulePlanVersion, "Deny", "a ClusterServiceVersion of the plan is not in the policy's versions"},
		{RulePlanVersionRange, "Deny", "the version of a ClusterServiceVersion is outside the policy's versionRange, or (Hold) not known"},
		{RulePlanCatalog, "Deny", "a ClusterServiceVersion comes from another catalog than the policy names, or (Hold) from one that is not known"},
		{RulePlanChannel, "Hold", "the Subscription behind a ClusterServiceVersion follows another channel than the policy names"},
		{RulePlanUpgrade, "Hold", "the plan upgrades an installed operator and the policy's upgradeApproval is None"},
		{RulePlanUnknownCSV, "Hold", "nothing tells which package a ClusterServiceVersion of the plan belongs to, or sources disagree"},
		{RulePlanPhase, "Hold", "the plan is approved before OLM has written its steps and asked for approval"},
		{RulePlanCreate, "Deny", "an InstallPlan is created by somebody else than OLM in a governed namespace"},
		{RulePlanBornApproved, "Hold", "OLM creates a plan that is already approved although a policy must judge it first"},
		{RulePlanFrozen, "Deny", "the contents of a stored plan are changed by somebody else than OLM"},
		{RulePlanStatusPhase, "Deny", "the phase of a plan is written by somebody else than OLM"},
		{RulePlanOverride, "Warn", "a refused plan is approved by a user with the RBAC verb override, for the reason given"},
		{RulePlanOverrideReason, "Deny", "annotation opgate.io/override-reason is put on a plan other than with an approval that needs an override"},
		{RulePlanDependency, "Hold", "the OperatorPolicy of a ClusterServiceVersion of the plan, or a Constraint that binds here, waits for what its Policy depends on"},
		{RulePlanConstraint, "Deny", "a ClusterServiceVersion of the plan does not satisfy a Constraint, or (Hold) it cannot be told whether it does"},
		{RulePlanBundleConstraint, "Hold", "a bundle of the plan has a constraint of its own that neither the plan, nor what is installed, nor the cluster satisfies"},
		{RulePlanKubeVersion, "Hold", "a ClusterServiceVersion of the plan needs a newer Kubernetes than the cluster has"},
		{RulePlanOpenShiftVersion, "Hold", "a ClusterServiceVersion of the plan is not for an OpenShift as new as the cluster's"},
		{RuleCSVConstraint, "Deny", "a ClusterServiceVersion, written past OLM or as a step of a plan, does not satisfy a Constraint, or (Hold) may not"},
		{RuleCSVPolicy, "Deny", "a ClusterServiceVersion, written past OLM or as a step of a plan, is not one that a policy allows, or (Hold) may not be"},
		{RuleCSVFrozen, "Deny", "a governed ClusterServiceVersion is changed by another user than OLM"},
		{RuleCSVVirtualOperator, "Deny", "somebody else than Opgate writes a virtual operator, by which cluster properties reach OLM's resolver"},
		{RulePolicyField, "Deny", "a field of an OperatorPolicy has a value that cannot work"},
		{RulePolicyUnknownField, "Deny", "an OperatorPolicy has a field that does not exist, or one twice"},
		{RulePolicyContradiction, "Deny", "two fields of an OperatorPolicy contradict each other"},
		{RulePolicyNormalized, "Warn", "values were copied from the earlier field name to the present one"},
		{RulePolicyIneffective, "Warn", "something in an OperatorPolicy cannot have the effect that its author will expect"},
		{RulePolicyOverlap, "Warn", "another OperatorPolicy governs the same package in the same namespace"},
		{RulePolicyUncovered, "Warn", "an installed ClusterServiceVersion is not one that the OperatorPolicy allows"},
		{RulePolicyPending, "Warn", "what the OperatorPolicy does to InstallPlans that wait for approval"},
		{RuleConstraintField, "Deny", "a field of a Constraint does not exist, is there twice, or has a value that cannot work"},
		{RuleConstraintSyntax, "Deny", "spec.constraints or spec.properties of a Constraint is not the JSON that it should be"},
		{RuleConstraintSize, "Deny", "a Constraint is too large, too deep or too long"},
		{RuleConstraintRule, "Deny", "a rule of a Constraint is not a CEL expression for true or false, may cost too much, or names a version range that is none"},
		{RuleConstraintProperty, "Deny", "a property of a Constraint, of a type that OLM knows, has a value of another shape"},
		{RuleConstraintIneffective, "Warn", "something in a Constraint cannot have the effect that its author will expect"},
		{RuleConstraintViolated, "Warn", "an installed operator does not satisfy the Constraint"},
		{RuleParentField, "Deny", "a Policy has a name or a field that cannot work"},
		{RuleParentConflict, "Deny", "a Policy waits for one object in two states at once"},
		{RuleParentDuplicate, "Deny", "a Policy names one object that it depends on in two API versions"},
		{RuleParentCycle, "Deny", "a Policy would wait for itself, through others that wait for it"},
		{RuleParentNamespace, "Warn", "a dependency of a Policy names a namespace that does not count for its kind"},
		{RuleParentEscalation, "Deny", "a Policy has a template of a kind that its author may not create"},
		{RuleParentAccess, "Deny", "a Policy waits for an object in another namespace, or in none, that its author may not get"},
		{RuleParentTemplate, "Warn", "a template of a Policy cannot be applied as it is written"},
		{RulePolicySetCycle, "Deny", "a Policy would wait for itself, through a PolicySet that it is a member of"},
	}
}
