package stream

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/olm"
)

// Fields are the members of an object that are kept: with nil a member as a whole, else only those fields of it.
type Fields map[string]Fields

// Any stands for all members that Fields does not name. It is for objects of which the API server prunes what their schema does not have.
const Any = "*"

// Limits of one member that is kept as a whole. Beyond them Pick keeps a text in its place that differs where the member does.
const (
	// maxTextBytes bounds a text. Annotations together may take 256 KiB.
	maxTextBytes = 256 << 10
	// maxMemberBytes and maxMemberValues bound a list or an object.
	maxMemberBytes  = 64 << 10
	maxMemberValues = 1024
)

const withheld = "too large to be kept: "

// Pick decodes some fields of a JSON object, as unstructured objects have them, and allocates nothing for the others. The JSON must be
// valid. Of two members of one name the last one counts.
func Pick(raw []byte, fields Fields) map[string]any {
	picked := map[string]any{}
	members(raw, func(name, value []byte) {
		below, ok := fields[string(name)]
		if !ok {
			below, ok = fields[Any]
		}
		switch {
		case !ok:
		case below != nil && value[0] == '{':
			picked[string(name)] = Pick(value, below)
		default:
			picked[string(name)] = member(value)
		}
	})
	return picked
}

// member decodes what is kept as a whole.
func member(raw []byte) any {
	large := len(raw) > maxMemberBytes || olm.CountValues(raw) > maxMemberValues
	if raw[0] == '"' {
		large = len(raw) > maxTextBytes
	}
	if large {
		return fmt.Sprintf("%s%d bytes, SHA-256 %x", withheld, len(raw), sha256.Sum256(raw))
	}
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &value); err != nil {
		return withheld + err.Error() // a number beyond all ranges
	}
	return value
}

// Withheld reports whether a value that Pick returned stands for one that was too large.
func Withheld(value any) bool {
	text, ok := value.(string)
	return ok && strings.HasPrefix(text, withheld)
}

// members goes through the members of a JSON object.
func members(raw []byte, do func(name, value []byte)) {
	i := skip(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return
	}
	for i = skip(raw, i+1); i < len(raw) && raw[i] == '"'; i = skip(raw, i+1) {
		end := endOf(raw, i)
		name := raw[i+1 : end-1]
		i = skip(raw, skip(raw, end)+1) // behind the colon
		if bytes.IndexByte(name, '\\') >= 0 {
			var text string
			if json.Unmarshal(raw[end-len(name)-2:end], &text) != nil {
				return
			}
			name = []byte(text)
		}
		if i >= len(raw) {
			return
		}
		end = endOf(raw, i)
		do(name, raw[i:end])
		i = skip(raw, end)
		if i >= len(raw) || raw[i] != ',' {
			return
		}
	}
}

// skip goes on to what is not white space.
func skip(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\r' || raw[i] == '\n') {
		i++
	}
	return i
}

// endOf is where the JSON value ends that begins at i.
func endOf(raw []byte, i int) int {
	depth := 0
	for ; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return min(i+1, len(raw))
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 { // of what a number, true, false or null stands in
				return i
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return len(raw)
}
