package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/opgate/opgate/internal/text"
)

const (
	// unknown is the width where the output is no terminal: that of man pages, and of most logs.
	unknown = 100
	// Lines are hard to read past widest, and become one word each below narrowest.
	widest, narrowest = 120, 40
)

// Width returns the number of columns to wrap text at.
func Width(out io.Writer) int {
	file, ok := out.(*os.File)
	if !ok {
		return unknown
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return unknown
	}
	return min(max(width, narrowest), widest)
}

// Colors reports whether to print in colors: to a terminal that can show them, unless $NO_COLOR is set
// (https://no-color.org).
func Colors(out io.Writer, environment func(string) string) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && environment("NO_COLOR") == "" && environment("TERM") != "dumb"
}

// The colors of a terminal.
const (
	Bold   = "\x1b[1m"
	Red    = "\x1b[1;31m"
	Yellow = "\x1b[33m"
	Green  = "\x1b[32m"
	reset  = "\x1b[0m"
)

// Cell is a text of a line, and its color if it has one.
type Cell struct{ Text, Color string }

// Plain returns a cell without a color.
func Plain(s string) Cell { return Cell{Text: s} }

// Printer prints lines. What it prints is escaped: names and messages may have been written by anyone.
type Printer struct {
	*bufio.Writer
	colored bool
}

// NewPrinter returns a printer, which prints in colors to a terminal that shows them.
func NewPrinter(out io.Writer) *Printer {
	return &Printer{bufio.NewWriter(out), Colors(out, os.Getenv)}
}

// Line prints cells on a line, after an indentation.
func (p *Printer) Line(indent int, cells ...Cell) {
	fmt.Fprint(p, strings.Repeat(" ", indent))
	for _, c := range cells {
		s := text.Escape(c.Text)
		if p.colored && c.Color != "" {
			s = c.Color + s + reset
		}
		fmt.Fprint(p, s)
	}
	fmt.Fprintln(p)
}

// JSON prints a value, in which < and > are not escaped, and characters that terminals obey are.
func JSON(out io.Writer, value any) error {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := out.Write(text.JSON(encoded.Bytes()))
	return err
}

// Progress returns a function that counts on a terminal how much was read, such as files, from the second second on,
// and one that clears the line. Anything else than a terminal gets no count.
func Progress(out io.Writer, what string, now func() time.Time) (count func(n int), clear func()) {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, func() {}
	}
	next, printed := now().Add(2*time.Second), false
	return func(n int) {
			if at := now(); at.After(next) {
				next, printed = at.Add(100*time.Millisecond), true
				fmt.Fprintf(file, "\r%d %s read", n, what)
			}
		}, func() {
			if printed {
				fmt.Fprint(file, "\r\x1b[K")
			}
		}
}
