package check

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// place is where something stands in the input.
type place struct {
	// file is the path as it was given, or standardInput.
	file string
	// document counts from 1 in the file; 0 where the problem is the file itself.
	document int
	// line counts from 1 in the file; 0 where it is unknown.
	line int
}

// String is the place as errors name it: "plans.yaml: document 2, line 14".
func (p place) String() string {
	s := printable(shownFile(p.file))
	switch {
	case p.document > 0:
		return fmt.Sprintf("%s: document %d, line %d", s, p.document, p.line)
	case p.line > 0:
		return fmt.Sprintf("%s: line %d", s, p.line)
	}
	return s
}

func (p place) at(line int) place {
	p.line = line
	return p
}

// problem is one reason why the input cannot be used.
type problem struct {
	place
	text string
}

func (p problem) String() string { return p.place.String() + ": " + printable(p.text) }

// printable shows what would move the cursor, change the terminal or turn the direction of the text as an
// escape, so that a manifest cannot write its own verdict on the screen.
func printable(s string) string {
	if strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
