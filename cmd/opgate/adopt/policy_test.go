package adopt

import (
	"strings"
	"testing"

	"github.com/opgate/opgate/olm"
)

// TestRanges: a range has the installed version, later ones as far as asked for, and none before or beyond.
func TestRanges(t *testing.T) {
	for _, suffix := range []string{"", "-rhodf", "-next.x", "-0", "-rc.1+b", "+5"} {
		for _, pin := range []string{pinPatch, pinMinor} {
			version, isMinor := "1.2.3"+suffix, pin == pinMinor
			allowed, err := olm.ParseVersionRange(rangeFrom(version, pin))
			if err != nil {
				t.Fatalf("%s of %s: %v", pin, version, err)
			}
			for other, want := range map[string]bool{version: true, "1.2.2" + suffix: false, "1.2.3-0": strings.HasPrefix(suffix, "-"),
				"1.2.3": true, "1.2.4-rc.x": true, "1.2.10": true, "1.3.0-rc.1": isMinor, "1.3.0": isMinor, "2.0.0-0": false} {
				if in, err := allowed.Contains(other); err != nil || in != want {
					t.Errorf("%s of %s has %s: %t (%v), want %t", pin, version, other, in, err, want)
				}
			}
		}
	}
	for _, version := range []string{"", "v1.2", "1.2", "18446744073709551615.0.0"} {
		if got := rangeFrom(version, pinMinor); got != "" {
			t.Errorf("of %s: got %q, want none", version, got)
		}
	}
}
