// Package text puts text that others wrote into messages, statuses and events. Names, messages and rules come from
// tenants, from authors of bundles and from catalogs, in any size and in any bytes: what this package returns is valid
// UTF-8 on one line, and holds nothing that moves a cursor, changes a terminal or turns the direction of the text
// around it. Letters, signs and blanks of every script stay as they are, in names and in prose.
package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxQuoted bounds what Quote shows, in bytes of its argument.
	maxQuoted = 120
	// maxName is the length of the longest name in Kubernetes, in bytes.
	maxName = 253
	dots    = "..."
)

// hidden reports whether a character is escaped, by its class: control (Cc) and format (Cf), which includes all that set
// the direction of text, and the separators of lines and paragraphs.
func hidden(r rune) bool {
	return r < ' ' || r > '~' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// Quote returns a value in quotes, with hidden characters escaped. Of a long one it shows the beginning, followed by
// dots.
func Quote(s string) string {
	end, more := min(len(s), maxQuoted), ""
	if end < len(s) {
		more = dots
		for end > maxQuoted-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
	}
	return `"` + Escape(quotes.Replace(s[:end])) + `"` + more
}

var quotes = strings.NewReplacer(`"`, `\"`, `\`, `\\`)

// Unquote returns the text of a JSON string, and any other JSON as it is: for messages that quote values themselves.
func Unquote(raw []byte) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	return s
}

// Name returns a name as it is where it could be one, and quoted where it is empty, too long, or has a character that
// no name has, as one that only looks like ASCII.
func Name(s string) string {
	if s == "" || len(s) > maxName || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Quote(s)
	}
	return s
}

// Escape returns a text without quotes, with hidden characters and bytes that are not UTF-8 escaped. Escaping twice
// changes nothing.
func Escape(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b []byte
	for i, r := range s {
		switch _, size := utf8.DecodeRuneInString(s[i:]); {
		case r == utf8.RuneError && size == 1:
			b = fmt.Appendf(b, `\x%02x`, s[i])
		case hidden(r):
			b = append(b, escaped(r)...)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return string(b)
}

// escaped returns a hidden character as an escape.
func escaped(r rune) string { return strings.Trim(strconv.QuoteRuneToASCII(r), "'") }

// JSON returns encoded JSON with hidden characters escaped as JSON does; it decodes to the same values.
func JSON(encoded []byte) []byte {
	var b []byte
	for _, r := range string(encoded) {
		units := utf16.AppendRune(nil, r)
		if r == '\n' || !hidden(r) {
			b, units = utf8.AppendRune(b, r), nil
		}
		for _, unit := range units {
			b = fmt.Appendf(b, `\u%04x`, unit)
		}
	}
	return b
}

// Join lists the first of some texts, each escaped, and counts the rest: "a, b and 3 more".
func Join(parts []string, most int) string { return join(parts, most, Escape) }

// Names lists the first of some names as Name returns them, and counts the rest.
func Names(names []string, most int) string { return join(names, most, Name) }

func join(parts []string, most int, show func(string) string) string {
	shown := make([]string, 0, min(len(parts), most))
	for _, part := range parts[:min(len(parts), most)] {
		shown = append(shown, show(part))
	}
	list := strings.Join(shown, ", ")
	if more := len(parts) - most; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// Truncate returns a text on one line, in at most so many bytes; one that it shortens ends in dots. Control characters,
// and the white space around them, become one space; other hidden characters are escaped, and each byte that is not UTF-8
// becomes a question mark. Truncating twice changes nothing.
func Truncate(s string, most int) string { return TruncateSuffix(s, most, dots) }

// TruncateSuffix is Truncate with another suffix than dots for what it shortens. It returns the whole suffix even where
// that is longer than most.
func TruncateSuffix(s string, most int, suffix string) string {
	if len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return s
	}
	line := make([]byte, 0, min(len(s), most)+utf8.UTFMax)
	fits := 0 // how much of line leaves room for the suffix
	for i := 0; i < len(s) && len(line) <= most; {
		if len(line) <= most-len(suffix) {
			fits = len(line)
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case breaks(r):
			line = bytes.TrimRight(line, " ")
			fits = min(fits, len(line))
			rest := strings.TrimLeftFunc(s[i:], func(r rune) bool { return r == ' ' || breaks(r) })
			size = len(s) - i - len(rest)
			if len(line) > 0 && rest != "" {
				line = append(line, ' ')
			}
		case r == utf8.RuneError && size == 1:
			line = append(line, '?')
		case hidden(r):
			line = append(line, escaped(r)...)
		default:
			line = utf8.AppendRune(line, r)
		}
		i += size
	}
	if len(line) > most {
		line = append(line[:fits], suffix...)
	}
	return string(line)
}

// breaks reports whether a character is control, or white space other than the space.
func breaks(r rune) bool { return r != ' ' && (unicode.IsControl(r) || unicode.IsSpace(r)) }

// Count returns a number with its unit, such as 2 properties.
func Count(n int, unit string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(unit, "y"):
		unit = strings.TrimSuffix(unit, "y") + "ies"
	default:
		unit += "s"
	}
	return strconv.Itoa(n) + " " + unit
}
