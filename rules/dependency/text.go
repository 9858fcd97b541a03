package dependency

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// shown leaves a plain name as it is, and quotes one in which something could play with a reader.
func shown(name string) string {
	const most = 253
	if len(name) > most {
		return strconv.QuoteToASCII(name[:most]) + "..."
	}
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return strconv.QuoteToASCII(name)
	}
	return name
}

// cut shortens a text of somebody else to so many bytes, and makes it one line of valid UTF-8.
func cut(s string, most int) string {
	const dots = "..."
	short := len(s) > most
	if short {
		s = s[:max(0, most-len(dots))]
		for len(s) > 0 { // no half character
			if r, size := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || size != 1 {
				break
			}
			s = s[:len(s)-1]
		}
	}
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if short {
		s += dots
	}
	return s
}

// few lists some names and counts the rest.
func few(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + " and " + strconv.Itoa(more) + " more"
	}
	return strings.Join(names, ", ")
}
