package constraint

// Outcome is the result of judging a bundle by a constraint.
type Outcome int

const (
	// Satisfied does not refuse the bundle.
	Satisfied Outcome = iota
	// Violated constraints refuse the bundle.
	Violated
	// Undecided constraints depend on something unknown.
	Undecided
	// Failed constraints could not be judged: a runtime error, a limit, an interruption, or a faulty definition. They
	// must not count as satisfied.
	Failed
)

// String returns the name of the outcome.
func (o Outcome) String() string {
	switch o {
	case Satisfied:
		return "satisfied"
	case Violated:
		return "violated"
	case Undecided:
		return "undecided"
	default:
		return "failed"
	}
}

// Result is that of a constraint which a bundle does not satisfy. Results are shared: they must not be changed.
type Result struct {
	// Definition is the Constraint object; nil for a bundle's own constraint.
	Definition *Definition
	// Constraint is nil if the definition as a whole is faulty.
	Constraint *Constraint
	Outcome    Outcome
	// Message is the author's: the result of messageExpression, else message or failureMessage, else "".
	Message string
	// Rule is a short form of the failed rule: a CEL expression, `package etcd in range ">=1.0.0"`, `gvk
	// etcd.database.coreos.com/v1beta2 EtcdCluster`, `none of (...)`; for a compound the failed part, if it is known.
	Rule string
	// Why is set if the outcome is Undecided or Failed: "the properties are not known", "no such key: version".
	Why string
	// Costly is set if the constraint Failed because it costs more than the limit.
	Costly bool
	// Attributes are those that an Undecided outcome depends on, if known.
	Attributes Attributes
}

// Lengths in bytes, ellipsis included, to which user-supplied text is truncated in messages.
const (
	ruleShown    = 256 + 3
	valueShown   = 80 + 3
	messageShown = 5*1024 + 3 // 5 KiB, as of Kubernetes' messageExpression
)
