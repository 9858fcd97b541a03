package constraint

import (
	"fmt"

	"github.com/opgate/opgate/internal/text"
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
	// Message says what is wrong and what would be accepted.
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
