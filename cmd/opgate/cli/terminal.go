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

// Printer prints lines. What it prints is escaped: names and messages may have been written by anyone.
type Printer struct{ *bufio.Writer }

// NewPrinter returns a printer.
func NewPrinter(out io.Writer) *Printer { return &Printer{bufio.NewWriter(out)} }

// Line prints a line, after an indentation.
func (p *Printer) Line(indent int, line string) {
	fmt.Fprintln(p, strings.Repeat(" ", indent)+text.Escape(line))
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
