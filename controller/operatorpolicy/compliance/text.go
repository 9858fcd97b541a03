package compliance

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// named returns namespace/name, as messages name an object.
func named(o *olm.ObjectMeta) string { return text.Name(o.Key()) }

// filter returns the items that satisfy a condition, in a list of their own.
func filter[T any](items []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(items), func(item T) bool { return !keep(item) })
}

// maxListed is the number of names that a message lists.
const maxListed = 20

// sentences joins sentences up to a readable length, and counts the rest.
func sentences(parts []string) string {
	const most, longest = 20, 500
	few := make([]string, 0, min(len(parts), most+1))
	for _, part := range parts[:min(len(parts), most)] {
		few = append(few, text.Truncate(part, longest))
	}
	if more := len(parts) - most; more > 0 {
		few = append(few, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(few, "; ")
}

// valueText returns a value of a field for a message.
func valueText(value any) string {
	switch v := value.(type) {
	case nil:
		return "not set"
	case string:
		return text.Quote(v)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return "not readable"
	}
	return text.Truncate(string(raw), 200)
}

// foreignText is the maximum length of quoted messages from other components.
const foreignText = 1000

var validReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,254}[A-Za-z0-9_])?$`)

// reasonOr returns the first of some words that is a valid reason of a condition: the API server refuses the
// whole status for one that is empty or has other characters.
func reasonOr(words ...string) string {
	for _, word := range words {
		if validReason.MatchString(word) {
			return word
		}
	}
	return "Unknown"
}
