package stream

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/jsonsize"
)

// Fields are the members of an object to store: with nil the whole member, else only those fields of it.
type Fields map[string]Fields

// Any means all members that Fields does not name. It is for objects whose unknown fields the API server prunes.
const Any = "*"

// Limits of one member that is stored as a whole. Beyond them Pick stores a placeholder text that differs if the member does.
const (
	// maxTextBytes bounds a string. All annotations together may take 256 KiB.
	maxTextBytes = 256 << 10
	// maxMemberBytes and maxMemberValues bound a list or an object.
	maxMemberBytes  = 64 << 10
	maxMemberValues = 1024
)

const withheld = "too large to be kept: "

// Pick decodes some fields of a JSON object, in the form of unstructured objects, and allocates nothing for the others. The JSON must be
// valid. Of two members with one name the last one counts.
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

// member decodes a member that is stored as a whole.
func member(raw []byte) any {
	held, _ := jsonsize.Measure(raw)
	large := len(raw) > maxMemberBytes || held > maxMemberValues
	if raw[0] == '"' {
		large = len(raw) > maxTextBytes
	}
	if large {
		return fmt.Sprintf("%s%d bytes, SHA-256 %x", withheld, len(raw), sha256.Sum256(raw))
	}
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &value); err != nil {
		return withheld + err.Error() // a number out of range
	}
	return value
}

// Withheld reports whether a value that Pick returned is the placeholder of one that was too large.
func Withheld(value any) bool {
	text, ok := value.(string)
	return ok && strings.HasPrefix(text, withheld)
}

// members calls do for the members of a JSON object.
func members(raw []byte, do func(name, value []byte)) {
	i := skip(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return
	}
	for i = skip(raw, i+1); i < len(raw) && raw[i] == '"'; i = skip(raw, i+1) {
		end := endOf(raw, i)
		name := raw[i+1 : end-1]
		i = skip(raw, skip(raw, end)+1) // after the colon
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

// skip returns the next position that is not white space.
func skip(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\r' || raw[i] == '\n') {
		i++
	}
	return i
}

// endOf returns the end of the JSON value that begins at i.
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
			if depth < 0 { // the end of the object or list around a number, true, false or null
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
