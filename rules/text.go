package rules

import (
	"strconv"
	"strings"
)

// quote shows a value from an object in a message: short, and with what is not printable ASCII escaped,
// so that a look-alike or a control character shows.
func quote(s string) string {
	const most = 120
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// printable shows text of an admin or of a bundle's author, a rule or a message, as it is: without quotes, but with what
// is not printable ASCII escaped, so that nothing in it can play with a terminal.
func printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r >= ' ' && r <= '~' {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
	}
	return b.String()
}

// shown is quote for names that are plain in the normal case: it leaves these without quotes.
func shown(name string) string {
	if len(name) > 253 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return quote(name)
	}
	return name
}

func plural(n int, noun string) string {
	return strconv.Itoa(n) + " " + noun
}

// joined lists a few names and counts the rest.
func joined(names []string) string {
	const most = 10
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + " and " + plural(more, "more")
	}
	return strings.Join(names, ", ")
}
