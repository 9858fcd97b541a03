package apijson

import (
	"bytes"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

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
