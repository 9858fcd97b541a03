package constraint

// Limits of what is read. They bound memory and the time to admit a Constraint.
const (
	// maxConstraintBytes bounds one element of spec.constraints, as written.
	maxConstraintBytes = 64 << 10
	// maxObjectBytes bounds the texts and values of a spec together.
	maxObjectBytes = 1 << 20
	// maxConstraints bounds the elements of spec.constraints and spec.rules together, maxProperties those of
	// spec.properties and spec.offers; maxConstraints also the constraints of one bundle.
	maxConstraints = 256
	maxProperties  = 1024
	// maxDepth bounds the nesting of JSON, also that of a bundle's own constraint.
	maxDepth = 100
)

// Limits of CEL, in cel-go's units of cost; docs/decisions/2026-11-21-constraints.md has what they take.
const (
	// maxRuleBytes bounds one expression, and maxRuleNodes its tree after macro expansion.
	maxRuleBytes = 10_000
	// maxRulesBytes bounds all expressions of one object: the compiler takes up to 3 milliseconds for a kilobyte.
	maxRulesBytes = 100_000
	maxRuleNodes  = 2_000
	// maxRuleDepth bounds nesting: cel-go's parser takes time quadratic in it.
	maxRuleDepth = 50
	// RuleCostLimit bounds the estimate of a rule, and what one evaluation of it costs. It is that of Kubernetes
	// (k8s.io/apiserver/pkg/apis/cel, PerCallLimit), of which most rules take 0.1 s, and the slowest known ones 0.7 s.
	RuleCostLimit = 1_000_000
	// BundleCostLimit bounds what all rules on one bundle cost: a costly bundle is held, and those beside it are
	// judged. It is that of Kubernetes for a request.
	BundleCostLimit = 10 * RuleCostLimit
	// maxRegexInstructions bounds a regular expression's compiled program: "(a{1000}){10}" is short to write.
	maxRegexInstructions = 500
	// maxRange bounds lists.range.
	maxRange = 10_000
	// interruptEvery is the number of loop iterations between checks for the interruption.
	interruptEvery = 100
)

// Limits of what CEL reads of a bundle. A value beyond them is an error only in rules that read it: single calls (a
// regular expression on a text) cannot be interrupted.
const (
	maxSeenText     = 16 << 10 // characters
	maxSeenElements = 4096     // of one list or map, rules of RBAC and of webhooks among them
	maxSeenDepth    = 32
)
