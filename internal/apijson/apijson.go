// Package apijson reads JSON into typed values with the semantics of the API server, in one pass.
package apijson

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// semantics are those of sigs.k8s.io/json, which the API server decodes with: of duplicate names the last counts, null
// changes nothing, bytes that are not UTF-8 are read as U+FFFD, and names are compared with their case.
var semantics = json.JoinOptions(
	jsontext.AllowDuplicateNames(true),
	jsontext.AllowInvalidUTF8(true),
	jsonv1.MergeWithLegacySemantics(true),
)

// strict are semantics without duplicate names, and without members that a value has no field for.
var strict = json.JoinOptions(semantics, jsontext.AllowDuplicateNames(false), json.RejectUnknownMembers(true))

// Unmarshal reads JSON into a pointer to a typed value, as sigs.k8s.io/json.UnmarshalCaseSensitivePreserveInts does.
// What the value has no field for is skipped, not copied. Types must not contain interfaces: numbers in them would be
// read as float64. The error about a value that its field cannot have is a *FieldError.
func Unmarshal(raw []byte, into any) error {
	err := json.Unmarshal(raw, into, semantics)
	mismatch, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return err
	}
	why := mismatch.Err // of a number that is too large, or of a method that decodes
	if why == nil {
		why = fmt.Errorf("want a value of type %s", mismatch.GoType)
	}
	var at *field.Path
	for token := range mismatch.JSONPointer.Tokens() {
		if i, err := strconv.Atoi(token); err == nil {
			at = at.Index(i)
		} else {
			at = at.Child(token)
		}
	}
	if at == nil {
		return why
	}
	if inner, nested := errors.AsType[*FieldError](why); nested {
		return &FieldError{Field: at.String() + "." + inner.Field, Err: inner.Err}
	}
	return &FieldError{Field: at.String(), Err: why}
}

// FieldError is what is wrong with a value, with the path of its field as users write it: spec.config.env[1].name.
type FieldError struct {
	Field string
	Err   error
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns the error without the path.
func (e *FieldError) Unwrap() error { return e.Err }

// UnmarshalStrict is Unmarshal that refuses duplicate names, and members that the value has no field for. Its errors
// are not for users.
func UnmarshalStrict(raw []byte, into any) error { return json.Unmarshal(raw, into, strict) }

// Reader reads a text token by token, with the same semantics as Unmarshal.
type Reader struct {
	*jsontext.Decoder
	text []byte
}

// NewReader returns a reader of a text. What it returns is part of the text, which must not change meanwhile.
func NewReader(text []byte) Reader {
	return Reader{jsontext.NewDecoder(bytes.NewBuffer(text), semantics), text}
}

// Value reads a value and returns it as it is written.
func (r Reader) Value() ([]byte, error) {
	value, err := r.ReadValue()
	end := int(r.InputOffset())
	return r.text[end-len(value) : end], err
}

// Text reads a string, or the name of a member, and returns what it stands for.
func (r Reader) Text() ([]byte, error) {
	quoted, err := r.Value()
	if err != nil {
		return nil, err
	}
	return unquote(quoted), nil
}

// Each reads an object or a list. It calls do before each name of a member, or each element, which do must read.
func (r Reader) Each(do func() error) error {
	if _, err := r.ReadToken(); err != nil {
		return err
	}
	for kind := r.PeekKind(); kind != '}' && kind != ']'; kind = r.PeekKind() {
		if err := do(); err != nil {
			return err
		}
	}
	_, err := r.ReadToken()
	return err
}

// unquote returns what a string of valid JSON stands for.
func unquote(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return quoted[1 : len(quoted)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, quoted) // the error is that of bytes that are not UTF-8, which it replaces
	return text
}
