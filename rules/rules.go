package rules

import (
	"slices"

	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/verdict"
)

// rule is a rule with what judges by it. It is an element of the list of its kind, in reading order; a constant has the
// ID of a rule that other code refers to. Each has a line in docs/rules.md and, except for those of the gate itself, a
// sample in manifests/samples and a scenario in e2e/scenarios; tests keep the four consistent.
type rule[In any] struct {
	verdict.Rule
	// byPolicy judges a write by each policy of the package, judge once for all of them. A rule without either is
	// judged by functions that refer to it.
	byPolicy bundle.ByPolicy[In]
	judge    func(In, verdict.RuleID, *verdict.Verdict)
	// previews is when judge also judges the Subscription that a policy asks for.
	previews moment
}

// moment is when a policy that is written previews what its Subscription will be told.
type moment int

const (
	never moment = iota
	always
	// ifCreated is where the policy makes a Subscription, ifAllowed where a user still has to.
	ifCreated
	ifAllowed
)

func plain[In any](kind []rule[In]) []verdict.Rule {
	rules := make([]verdict.Rule, len(kind))
	for i := range kind {
		rules[i] = kind[i].Rule
	}
	return rules
}

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
	return slices.Concat(plain(subscriptionRules), bundle.Rules(), planRules, csvRules, catalogSourceRules,
		plain(operatorGroupRules), plain(clusterExtensionRules), clusterCatalogRules, deletionRules,
		operatorPolicyRules, constraintRules, dependency.Rules())
}
