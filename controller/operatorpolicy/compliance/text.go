package compliance

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// named is namespace/name, as messages name an object.
func (o *Object) named() string { return plain(o.Namespace + "/" + o.Name) }

// plain is a name as it stands in a message. One that is none is quoted, so that a look-alike or a line break
// shows.
func plain(name string) string {
	if len(name) > 253 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return quoted(name)
	}
	return name
}

// listed joins a few names and counts the rest.
func listed(names []string) string {
	const most = 20
	few := make([]string, 0, min(len(names), most))
	for _, name := range names[:min(len(names), most)] {
		few = append(few, plain(name))
	}
	text := strings.Join(few, ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// sentences joins a few sentences, none of them longer than a person reads, and counts the rest.
func sentences(parts []string) string {
	const most, longest = 20, 500
	few := make([]string, 0, min(len(parts), most+1))
	for _, part := range parts[:min(len(parts), most)] {
		few = append(few, shortened(part, longest))
	}
	if more := len(parts) - most; more > 0 {
		few = append(few, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(few, "; ")
}

// quoted shows a short value with what is not printable ASCII escaped.
func quoted(s string) string {
	const most = 120
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// shown is a value of a field as a message shows it.
func shown(value any) string {
	switch v := value.(type) {
	case nil:
		return "not set"
	case string:
		return quoted(v)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return "not readable"
	}
	return shortened(string(raw), 200)
}

// shortened cuts text that others wrote, at a whole character: a condition takes no more than 32 KiB, and no
// text that is not UTF-8.
func shortened(s string, most int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= most {
		return s
	}
	for !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "..."
}

// foreignText is the most that is shown of a message from elsewhere.
const foreignText = 1000

var validReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,254}[A-Za-z0-9_])?$`)

// reasonOr gives the first of some words that a condition takes as its reason: the API server refuses the
// whole status for one that is empty or holds other characters (R-ST-6).
func reasonOr(words ...string) string {
	for _, word := range words {
		if validReason.MatchString(word) {
			return word
		}
	}
	return "Unknown"
}
