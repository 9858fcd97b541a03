package stream

import (
	"crypto/sha256"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/apijson"
)

// Fields are the members of an object to store: with nil the whole member, else only those fields of it.
type Fields map[string]Fields

// Any means all members that Fields does not name. It is for objects whose unknown fields the API server prunes.
const Any = "*"

// Limits of one member that is stored as a whole. Beyond them Pick stores a placeholder text that differs if the member
// does.
const (
	// maxTextBytes bounds a string. All annotations together may take 256 KiB.
	maxTextBytes = 256 << 10
	// maxMemberBytes and maxMemberValues bound a list or an object.
	maxMemberBytes  = 64 << 10
	maxMemberValues = 1024
)

const withheld = "too large to be kept: "

// Pick decodes some fields of a JSON object, in the form of unstructured objects, and allocates nothing for the others.
// The JSON must be valid. Of two members with one name the last one counts.
func Pick(raw []byte, fields Fields) map[string]any {
	picked := map[string]any{}
	if r := apijson.NewReader(raw); r.PeekKind() == '{' {
		_ = pick(r, fields, picked) // the JSON is valid
	}
	return picked
}

func pick(r apijson.Reader, fields Fields, picked map[string]any) error {
	return r.Each(func() error {
		name, err := r.Text()
		if err != nil {
			return err
		}
		below, ok := fields[string(name)]
		if !ok {
			below, ok = fields[Any]
		}
		if ok && below != nil && r.PeekKind() == '{' {
			part := map[string]any{}
			picked[string(name)] = part
			return pick(r, below, part)
		}
		value, err := r.Value()
		if ok && err == nil {
			picked[string(name)] = member(value)
		}
		return err
	})
}

// member decodes a member that is stored as a whole.
func member(raw []byte) any {
	held, _ := apijson.Measure(raw)
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

// Withhold returns the placeholder of a value that is not stored, and why.
func Withhold(why string) string { return withheld + why }

// Withheld reports whether a value that Pick returned is the placeholder of one that was too large.
func Withheld(value any) bool {
	text, ok := value.(string)
	return ok && strings.HasPrefix(text, withheld)
}
