package rules

import (
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/dependency"
)

// RulePlanDependencyPending holds what a suspended policy governs.
const RulePlanDependencyPending RuleID = "plan/dependency-pending"

var planDependencyPending = Rule{RulePlanDependencyPending, OutcomeHold, "the OperatorPolicy of a ClusterServiceVersion of the plan, or a Constraint that binds here, waits for what its Policy depends on"}

// InOrder is the namespace for those who want to be told what a suspended guard waits for, all along the chain of
// Policies. Without it they are told the first Policy.
func (n *Namespace) InOrder(order *dependency.Graph) *Namespace {
	if n == nil || order == nil {
		return n
	}
	told := *n
	told.order = order
	return &told
}

// waiting holds something for a guard that a Policy has suspended, because of what the Policy depends on (seed 003). Pending
// is that Policy, as namespace/name, or whatever else was written in its place; a guard that says nothing holds nothing.
func (n *Namespace) waiting(pending, guard, what string) finding {
	if pending == "" {
		return finding{}
	}
	return finding{decision: Hold, what: what + " is held", accepted: dependency.ReasonDependencyPending + ": " + n.chain(pending, guard)}
}

func (n *Namespace) chain(pending, guard string) string {
	namespace, name, named := strings.Cut(pending, "/")
	if !named {
		return "annotation " + dependency.AnnotationPending + " says " + text.Quote(pending)
	}
	var order *dependency.Graph // of nothing, where nobody knows more
	if n != nil {
		order = n.order
	}
	return order.Chain(dependency.PolicyRef(namespace, name), guard)
}
