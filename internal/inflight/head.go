package inflight

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Head is what the API server writes of a review before the object: enough to refuse a review that is not read in full.
type Head struct {
	// UID is that of the request, "" if the text does not contain one of at most maxName bytes.
	UID string
	// Namespace is that of the object, "" for objects without one.
	Namespace string
}

// maxName bounds the UID and the namespace in bytes: the UID is repeated in the answer.
const maxName = 253

// ReadHead reads the head of a review from as much of its text as there is.
func ReadHead(text []byte) Head {
	var h Head
	d := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		token, err := d.ReadToken()
		if err != nil || token.Kind() == '}' || token.Kind() == '[' {
			return h
		}
		if token.Kind() == '{' {
			continue
		}
		field, name := (*string)(nil), token.String()
		switch {
		case d.StackDepth() == 1 && name == "request" && d.PeekKind() == '{':
			continue
		case d.StackDepth() == 2 && name == "uid" && d.PeekKind() == '"':
			field = &h.UID
		case d.StackDepth() == 2 && name == "namespace" && d.PeekKind() == '"':
			field = &h.Namespace
		case d.StackDepth() == 2 && name == "object" && h.UID != "":
			return h
		case d.StackDepth() == 0 || d.SkipValue() != nil:
			return h
		}
		if field == nil {
			continue
		}
		if token, err = d.ReadToken(); err != nil {
			return h
		}
		if value := token.String(); len(value) <= maxName {
			*field = value
		}
	}
}
