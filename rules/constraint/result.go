package constraint

import (
	"fmt"

	"github.com/opgate/opgate/internal/text"
)

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
	return [...]string{"satisfied", "violated", "undecided", "failed"}[o]
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

// FaultKind is the category of a fault.
type FaultKind int

const (
	// Syntax is JSON that cannot be parsed, unknown or repeated keys, and values of a wrong type.
	Syntax FaultKind = iota + 1
	// Size is text, lists or nesting beyond a limit.
	Size
	// Rule is CEL that does not compile or could cost too much, an invalid version range, or an empty constraint.
	Rule
	// PropertyShape is a property of a known type that is not well-formed.
	PropertyShape
	// Ineffective is valid input that hardly does what was intended. It is only a warning.
	Ineffective
)

// Fault is an error in a definition.
type Fault struct {
	Kind FaultKind
	// Path is the path of the field, such as "spec.constraints[0].value.rule".
	Path string
	// Value is the offending value, truncated; it may be empty.
	Value string
	// Message states what is wrong and what would be accepted.
	Message string
}

// Warning reports whether the definition can be used nevertheless.
func (f Fault) Warning() bool { return f.Kind == Ineffective }

// faults collects the faults of a definition.
type faults []Fault

func (f *faults) add(kind FaultKind, path, value, message string) {
	*f = append(*f, Fault{Kind: kind, Path: path, Value: text.Truncate(value, valueShown), Message: message})
}

// room reports whether a list of a spec, with what another one has, is within a limit, and adds a fault if it is not.
func (f *faults) room(path string, others, length, limit int) bool {
	if others+length <= limit {
		return true
	}
	f.add(Size, path, "", fmt.Sprintf("has %d elements and there are %d in the other form, the limit is %d together; "+
		"use several Constraint objects", length, others, limit))
	return false
}
