package olm

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/blang/semver/v4"

	"github.com/opgate/opgate/internal/cputime"
)

func TestParseVersionRangeRefuses(t *testing.T) {
	for text, why := range map[string]string{
		"":                      "not a version range",
		"   ":                   "not a version range",
		"latest":                "not a version range",
		"1.10":                  "not a version range",
		">=1.9":                 "not a version range",
		">=v1.0.0":              "not a version range",
		">=1.0.0 2":             `has "2"`,
		">=1.0.0||<0.5.0":       "not a version range",
		">=1.0.0 ||":            "not a version range",
		"1.0.0 || || 2.0.0":     "not a version range", // the library returns a range that panics
		">2.0.0 <1.0.0":         "matches no version",
		">1.0.0 <1.0.0":         "matches no version",
		"1.2.3 1.2.4":           "matches no version",
		">=1.x <1.0.0":          "matches no version",
		">=1.0.0\t<2.0.0":       "not printable ASCII",
		">=1.0.0 <2.0.\uff10":   "not printable ASCII", // a full-width zero
		"\u2265 1.0.0":          "not printable ASCII",
		strings.Repeat("<", 99): "not a version range",
	} {
		if _, err := ParseVersionRange(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: error %v, want one with %q", text, err, why)
		}
	}
}

// TestH3VersionRangeTime: the time to parse a range grows no faster than its length. With all versions tried in all
// alternatives 20,000 alternatives took more than 30 seconds (h3).
func TestH3VersionRangeTime(t *testing.T) {
	const most = 5 * time.Second
	for name, c := range map[string]struct {
		text string
		why  string
	}{
		"alternatives that match nothing": {
			text: strings.Repeat(">2.0.0 <1.0.0 || ", 20_000) + ">2.0.0 <1.0.0",
			why:  "matches no version",
		},
		"comparisons": {
			text: strings.Repeat(">1.0.0 ", 20_000) + "<1.0.0",
			why:  "has an alternative of 20001 comparisons, at most 100 are read",
		},
	} {
		t.Run(name, func(t *testing.T) {
			start := cputime.Used()
			_, err := ParseVersionRange(c.text)
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("error %v, want one with %q", err, c.why)
			}
			if took := cputime.Used() - start; took > most {
				t.Errorf("it took %s, at most %s", took, most)
			}
		})
	}
}

func TestVersionRangeContains(t *testing.T) {
	for _, c := range []struct {
		text, version string
		want          bool
	}{
		{">=1.9.0", "1.10.0", true}, // number by number, not as text (threat O11)
		{"<=1.9.0", "1.10.0", false},
		{"1.2.x", "1.2.9", true},
		{"1.x", "2.0.0", false},
		{"!1.2.3", "1.2.3", false},
		{"!1.2.3", "1.2.4", true},
		{">=1.0.0 <1.5.0 || >=2.0.0", "1.7.0", false},
		{">=1.0.0 <1.5.0 || >=2.0.0", "2.1.0", true},
		{">=1.0.0", "1.0.0-rc.1", false}, // a pre-release comes before its release
		{">1.2.3 <1.2.4", "1.2.4-0", true},
		{">1.0.0-alpha <1.0.0-beta", "1.0.0-alpha.1", true},
		{">=1.0.0", "1.0.0+build.7", true}, // build metadata does not order
		{"<0.0.1", "0.0.0", true},
		{"<=0.0.0-0", "0.0.0-0", true},
	} {
		r, err := ParseVersionRange(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if got, err := r.Contains(c.version); err != nil || got != c.want {
			t.Errorf("%q contains %q is %v (%v), want %v", c.text, c.version, got, err, c.want)
		}
	}
	r, err := ParseVersionRange(">=1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"", "v1.0.0", "1.0", "1", "01.0.0", "1.0.0 ", "1.0.0-", "\uff11.0.0"} {
		if in, err := r.Contains(version); err == nil || in {
			t.Errorf("version %q is read as if it were one", version)
		}
	}
}

// FuzzVersionRange checks that no range panics, and that an unsatisfiable one contains none of the versions of a wide
// grid.
func FuzzVersionRange(f *testing.F) {
	for _, seed := range []string{">=1.0.0 <2.0.0", "1.2.x", "!1.x", ">1.0.0-a.1 <1.0.0-a.2", "<0.0.0-0",
		">1.2.3 <1.2.4 || 5.x", "=1.0.0 !=1.0.0"} {
		f.Add(seed)
	}
	var grid []string
	for _, core := range []string{"0.0.0", "0.0.1", "0.1.0", "1.0.0", "1.0.1", "1.1.0", "1.2.3", "1.2.4", "2.0.0",
		"3.4.5", "10.0.0", "99999.0.0"} {
		for _, pre := range []string{"", "-0", "-1", "-a", "-a.0", "-a.1", "-z.z.z"} {
			grid = append(grid, core+pre)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := ParseVersionRange(text)
		if err == nil || !strings.Contains(err.Error(), "no version at all") {
			return
		}
		contains := mustRange(t, text)
		for _, version := range grid {
			if contains(version) {
				t.Errorf("%q is taken for unsatisfiable and holds %s", text, version)
			}
		}
	})
}

// TestIntervals: the intervals of a range contain what the range contains, at its bounds and beside them.
func TestIntervals(t *testing.T) {
	var grid []semver.Version
	for _, core := range []string{"0.0.0", "0.0.1", "0.9.9", "1.0.0", "1.0.1", "1.1.0", "1.2.3", "1.2.4", "1.3.0",
		"2.0.0", "2.0.1", "3.0.0", "9.9.9"} {
		for _, pre := range []string{"-0", "-a", "-a.0", "-a.1", "-rc.1", "-rc.1.0", "", "+build"} {
			grid = append(grid, semver.MustParse(core+pre))
		}
	}
	for _, text := range []string{"1.0.0", ">=1.0.0 <2.0.0", ">1.0.0", "<=2.0.0", "1.2.x", "1.x", ">1.x", "<=1.2.x",
		"!=1.2.3", ">=1.0.0-a <1.0.0-rc.1",
		"<1.0.0 || >=2.0.0 !=2.0.1 || 1.2.3", ">=0.0.0", "<0.0.1", ">1.0.0-a", "<=18446744073709551615.0.0",
		"<=1.0.18446744073709551615", "1.0.0 || 1.0.1"} {
		r, err := ParseVersionRange(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		intervals := r.Intervals()
		for _, v := range grid {
			in := slices.ContainsFunc(intervals, func(i Interval) bool { return i.contains(v) })
			if want := r.contains(v); in != want {
				t.Errorf("%q: %s is in %+v: %t, want %t", text, v, intervals, in, want)
			}
		}
	}
}

func (i Interval) contains(v semver.Version) bool {
	above := i.Low == "" || v.GT(semver.MustParse(i.Low)) || i.HasLow && v.EQ(semver.MustParse(i.Low))
	return above && (i.High == "" || v.LT(semver.MustParse(i.High)) || i.HasHigh && v.EQ(semver.MustParse(i.High)))
}

// mustRange parses a range with the library only, without our own checks.
func mustRange(t *testing.T, text string) func(version string) bool {
	t.Helper()
	contains, err := semver.ParseRange(text)
	if err != nil {
		t.Fatal(err)
	}
	return func(version string) bool { return contains(semver.MustParse(version)) }
}

// TestNewerOpenShift: 4.23 and 5.0 are one release, and patch versions do not count.
func TestNewerOpenShift(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		version, than string
		want          bool
	}{
		{"4.19.3", "4.19", false}, {"4.20.0", "4.19", true}, {"4.18.0", "4.19", false},
		{"5.0.0", "4.23", false}, {"4.23.7", "5.0", false}, {"5.0.1", "4.22", true}, {"5.1.0", "4.23", true},
		{"4.23.0", "4.22", true}, {"4.22.9", "5.0", false}, {"4.24.0", "4.23", false}, {"4.24.0", "5.0", false},
	} {
		version, than := semver.MustParse(test.version), must(semver.ParseTolerant(test.than))
		if got := NewerOpenShift(version, than); got != test.want {
			t.Errorf("%s is newer than %s: %t, want %t", test.version, test.than, got, test.want)
		}
	}
}

func must(v semver.Version, err error) semver.Version {
	if err != nil {
		panic(err)
	}
	return v
}

// TestVersionsWithSuffixes: a suffix counts as before the version, and the range that was meant is proposed where that
// decides. docs/rules.md has the table.
func TestVersionsWithSuffixes(t *testing.T) {
	page, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		text, version string
		in            bool
		wider         string
	}{
		{"<4.17.0", "4.17.0-rhodf", true, "<4.17.0-0"},
		{">=4.16.3", "4.16.3-rhodf", false, ">=4.16.3-0"},
		{">=4.16.0 <4.17.0", "4.17.0-rhodf", true, ">=4.16.0-0 <4.17.0-0"},
		{"4.16.x", "4.16.0-rhodf", false, ">=4.16.0-0 <4.17.0-0"},
		{"4.16.x", "4.17.0-rhodf", true, ">=4.16.0-0 <4.17.0-0"},
		{"<=4.16.3", "4.16.3-rhodf", true, ""},
		{">4.16.2", "4.16.3-rhodf", true, ""},
		{"=4.16.3", "4.16.3-rhodf", false, ""},
	} {
		r, err := ParseVersionRange(tc.text)
		if err != nil {
			t.Fatal(err)
		}
		in, err := r.Contains(tc.version)
		if err != nil || in != tc.in || r.WithSuffixes(tc.version) != tc.wider {
			t.Errorf("%s has %s: %t, meant %q, %v", tc.text, tc.version, in, r.WithSuffixes(tc.version), err)
		}
		said := map[bool]string{true: "yes", false: "no"}[in]
		wider := "-"
		if tc.wider != "" {
			wider = "`" + tc.wider + "`"
		}
		if row := "| `" + tc.text + "` | " + tc.version + " | " + said + " | " + wider + " |\n"; !strings.Contains(string(page), row) {
			t.Errorf("docs/rules.md does not have the row %s", row)
		}
	}
	for _, text := range []string{"<=4.17.0-next", ">=4.16.0-x", ">=1.0.0 <2.0.0-0.x"} {
		if _, err := ParseVersionRange(text); err == nil || !strings.Contains(err.Error(), "wildcard") {
			t.Errorf("%s: %v", text, err)
		}
	}
	r, err := ParseVersionRange("<4.17.0-0")
	if err != nil || r.WithSuffixes("4.17.0-rhodf") != "" {
		t.Errorf("what was meant is meant again: %v", err)
	}
}
