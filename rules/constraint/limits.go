package constraint

// Limits of what is read. They bound memory and the time that a write of a Constraint takes.
const (
	// maxConstraintBytes bounds one element of spec.constraints, as it was written.
	maxConstraintBytes = 64 << 10
	// maxObjectBytes bounds spec.constraints and spec.properties together.
	maxObjectBytes = 1 << 20
	// maxConstraints and maxProperties bound the two lists of one object; maxConstraints those that one bundle brings, too.
	maxConstraints = 256
	maxProperties  = 1024
	// maxDepth bounds how deep JSON is nested, also that of a bundle's own constraint.
	maxDepth = 100
)

// Limits of CEL. Costs are in cel-go's units; what they mean in time on the machine that they were chosen on is
// in docs/decisions/2026-11-21-cel.md.
const (
	// maxRuleBytes bounds one expression, and maxRuleNodes its tree after macros.
	maxRuleBytes = 10_000
	// maxRulesBytes bounds all expressions of one object: the compiler takes up to 3 milliseconds for a kilobyte.
	maxRulesBytes = 100_000
	maxRuleNodes  = 2_000
	// maxRuleDepth bounds nesting. cel-go's parser takes quadratic time in it.
	maxRuleDepth = 50
	// RuleCostLimit bounds the estimate of one evaluation of one rule. It is that of Kubernetes
	// (k8s.io/apiserver/pkg/apis/cel, PerCallLimit), about 0.1 s.
	RuleCostLimit = 1_000_000
	// RequestCostLimit bounds all evaluations of one request, also as in Kubernetes: about 1 s.
	RequestCostLimit = 10 * RuleCostLimit
	// countedCostLimit bounds an evaluation whose cost is counted while it runs, and countedFactor is what a unit of it is
	// charged. cel-go's count gets slower the longer a loop runs, in the square: it never drops what it
	// has seen (interpreter.refValStack).
	countedCostLimit = 25_000
	countedFactor    = 10
	// maxRegexInstructions bounds a regular expression's compiled program: "(a{1000}){10}" is short to write.
	maxRegexInstructions = 500
	// maxRange bounds lists.range.
	maxRange = 10_000
	// interruptedFrom is the estimate from which an evaluation can be interrupted in its midst; a cheaper one ends by itself within
	// a millisecond.
	interruptedFrom = 10_000
	// interruptEvery is the number of loop iterations between looks at the interruption.
	interruptEvery = 100
)

// Limits of what CEL sees of a bundle. A value beyond them is an error to the rule that touches it, and to no
// other rule: single calls (a regular expression over a text) cannot be interrupted.
const (
	maxSeenText     = 16 << 10 // characters
	maxSeenElements = 4096     // of one list or map, rules of RBAC and of webhooks among them
	maxSeenDepth    = 32
)
