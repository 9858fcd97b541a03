package inflight

import (
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

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

// What decoding takes for what is in a body, in bytes. TestA3DecodingFitsItsPrice compares.
const (
	// perByte is for the copies that are made of strings: text inside text is unquoted once more for each level.
	perByte = 4
	// perValue is for the struct, the map entry or the interface that a value becomes.
	perValue = 256
	// perRawValue is for a value in what is kept as JSON. The digest of a Policy, and that of a ClusterServiceVersion,
	// decode it for a while, into no type.
	perRawValue = 96
	// perLevel is for the stacks of the decoder and the encoder, which recurse; a stack that grows is copied.
	perLevel = 3 << 10
)

var errNotUTF8 = errors.New("it is not UTF-8")

// price returns how many bytes it takes at most to decode a body and to judge or convert what is in it; an error if
// nothing could be decoded that way. Raw is the name of members that are kept as JSON, "" for none. It looks at the
// text alone, once, and allocates nothing: what is too much must be refused before it becomes millions of structs.
func price(body []byte, raw string, most int64) (int64, error) {
	if !utf8.Valid(body) {
		// The API server sends none. Each bad byte would become three.
		return 0, errNotUTF8
	}
	held, kept, depth := apijson.MeasureWithin(body, raw)
	values := 1 + held // and the body
	fixed := perByte*int64(len(body)) + perLevel*int64(depth) + perRawValue*int64(kept)
	if total := fixed + perValue*int64(values-kept); total <= most {
		return total, nil
	}
	return 0, fmt.Errorf("it has %d bytes, %d values and %d levels, which is more than is read: at most %d values in as many bytes and levels",
		len(body), values, depth, kept+int(max(0, most-fixed)/perValue))
}
