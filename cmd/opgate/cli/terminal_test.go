package cli

import (
	"bytes"
	"testing"
)

// TestPrinter prints nothing that a terminal would obey.
func TestPrinter(t *testing.T) {
	var out bytes.Buffer
	p := NewPrinter(&out)
	p.Line(2, "a b\x1b[2J")
	if err := p.Flush(); err != nil || out.String() != "  a b\\x1b[2J\n" {
		t.Errorf("%v: it prints %q", err, out.String())
	}
}
