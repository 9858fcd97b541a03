package inflight

import (
	"io"

	"github.com/opgate/opgate/internal/apijson"
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

// ReadHead reads the head of a review from as much of its text as there is. It ends before the object, if the UID is
// before it, as the API server writes it.
func ReadHead(text []byte) (h Head) {
	r := apijson.NewReader(text)
	_ = members(r, func(name string) error { // what comes before the fault, or before the text ends, is set
		if name != "request" {
			return r.SkipValue()
		}
		return members(r, func(name string) (err error) {
			switch {
			case name == "uid":
				h.UID, err = readName(r)
			case name == "namespace":
				h.Namespace, err = readName(r)
			case name == "object" && h.UID != "":
				return io.EOF
			default:
				return r.SkipValue()
			}
			if h.UID != "" && h.Namespace != "" {
				return io.EOF
			}
			return err
		})
	})
	return h
}

// members reads an object, and calls do after each name; it skips any other value.
func members(r apijson.Reader, do func(name string) error) error {
	if r.PeekKind() != '{' {
		return r.SkipValue()
	}
	return r.Each(func() error {
		name, err := r.Text()
		if err != nil {
			return err
		}
		return do(string(name))
	})
}

// readName reads a name, "" if the value is none.
func readName(r apijson.Reader) (string, error) {
	if r.PeekKind() != '"' {
		return "", r.SkipValue()
	}
	text, err := r.Text()
	if len(text) > maxName {
		return "", err
	}
	return string(text), err
}
