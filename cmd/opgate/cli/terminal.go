package cli

import (
	"encoding/json"
	"io"
	"os"

	"golang.org/x/term"
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

// JSON prints a value, in which < and > are not escaped.
func JSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
