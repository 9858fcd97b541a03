package constraint

// Outcome is how a bundle stands to a constraint.
type Outcome int

const (
	// Satisfied holds nothing.
	Satisfied Outcome = iota
	// Violated constraints refuse the bundle.
	Violated
	// Undecided constraints depend on something that is not known.
	Undecided
	// Failed constraints could not be judged: an error at run time, a limit, an interruption, or a definition
	// that is faulty. What could not be judged must not read as satisfied.
	Failed
)

// String names the outcome for people.
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

// Finding is one constraint that a bundle does not satisfy. Findings are shared: they must not be changed.
type Finding struct {
	// Definition is the Constraint object; nil for a bundle's own constraint.
	Definition *Definition
	// Constraint is nil where the definition as a whole is faulty.
	Constraint *Constraint
	Outcome    Outcome
	// Message is the author's: the result of messageExpression, else message or failureMessage, else "".
	Message string
	// Rule is the failing rule in short, for people: a CEL expression, `package etcd in range ">=1.0.0"`,
	// `gvk etcd.database.coreos.com/v1beta2 EtcdCluster`, `none of (...)`; of a compound the part that failed,
	// where one can be told.
	Rule string
	// Why is set where it is Undecided or Failed: "the properties are not known", "no such key: version".
	Why string
	// Attributes are what it depends on where it is Undecided and that can be told.
	Attributes Attributes
}

// Lengths in bytes, dots included, to which text that people wrote is truncated in messages.
const (
	ruleShown    = 256 + 3
	valueShown   = 80 + 3
	messageShown = 5*1024 + 3 // 5 KiB, as of Kubernetes' messageExpression
)
