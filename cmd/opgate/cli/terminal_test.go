package cli

import (
	"bufio"
	"bytes"
	"testing"
)

// TestPrinter prints in colors, and nothing that a terminal would obey.
func TestPrinter(t *testing.T) {
	for _, c := range []struct {
		name    string
		colored bool
		want    string
	}{
		{name: "plain", want: "  a b\\x1b[2J\n"},
		{name: "colored", colored: true, want: "  a \x1b[1;31mb\\x1b[2J\x1b[0m\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			p := &Printer{bufio.NewWriter(&out), c.colored}
			p.Line(2, Plain("a "), Cell{Text: "b\x1b[2J", Color: Red})
			if err := p.Flush(); err != nil || out.String() != c.want {
				t.Errorf("%v: it prints %q, want %q", err, out.String(), c.want)
			}
		})
	}
}
