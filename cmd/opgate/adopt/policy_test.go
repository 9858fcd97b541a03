package adopt

import (
	"slices"
	"testing"

	"github.com/opgate/opgate/olm"
)

// TestRanges: a range has the installed version, later ones as far as asked for, and none before or beyond.
func TestRanges(t *testing.T) {
	for _, c := range []struct {
		version, pin, want string
		in, out            []string
	}{
		{"0.9.4", pinPatch, ">=0.9.4 <0.10.0-0", []string{"0.9.4", "0.9.10"}, []string{"0.9.3", "0.9.4-rc.1", "0.10.0-rc.1", "0.10.0"}},
		{"0.9.4", pinMinor, ">=0.9.4 <1.0.0-0", []string{"0.9.4", "0.10.0"}, []string{"0.9.3", "1.0.0-rc.1"}},
		{"4.16.3-rhodf", pinPatch, ">=4.16.3-0 <4.17.0-0", []string{"4.16.3-rhodf", "4.16.3", "4.16.4-rhodf"},
			[]string{"4.16.2-rhodf", "4.17.0-rhodf"}},
		{"1.2.3+5", pinPatch, ">=1.2.3 <1.3.0-0", []string{"1.2.3+5", "1.2.3+6"}, []string{"1.3.0"}},
		{"1.0.0-next.x", pinMinor, ">=1.0.0-0 <2.0.0-0", []string{"1.0.0-next.x", "1.0.0"}, []string{"0.9.9"}},
		{"1.2.3", pinExact, "", nil, nil},
		{"", pinPatch, "", nil, nil},
		{"v1.2", pinPatch, "", nil, nil},
		{"18446744073709551615.0.0", pinMinor, "", nil, nil},
	} {
		got := rangeFrom(c.version, c.pin)
		if got != c.want {
			t.Errorf("%s of %s: got %q, want %q", c.pin, c.version, got, c.want)
			continue
		}
		if got == "" {
			continue
		}
		allowed, err := olm.ParseVersionRange(got)
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range append(c.in, c.out...) {
			in, err := allowed.Contains(version)
			if want := !slices.Contains(c.out, version); err != nil || in != want {
				t.Errorf("%q has %s: %t (%v), want %t", got, version, in, err, want)
			}
		}
	}
}
