package olm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/lib/release"
)

// TestOlderVersion: versions come first, then releases that are written as build metadata.
func TestOlderVersion(t *testing.T) {
	ascending := []string{"1.2.3-rc.1", "1.2.3", "1.2.3+1", "1.2.3+2", "1.2.3+10", "1.2.3+10.1", "1.2.3+a", "1.2.4",
		"v1.10"}
	for i, a := range ascending {
		for j, b := range ascending {
			if got := OlderVersion(a, b); got != (i < j) {
				t.Errorf("%s is older than %s: %t", a, b, got)
			}
		}
	}
	for _, none := range []string{"", "none", "1.2.3+01", "1.2.3+" + strings.Repeat("1", maxRelease+1)} {
		if OlderVersion(none, "1.2.3+2") || OlderVersion("1.2.3+2", none) {
			t.Errorf("%q is compared", none)
		}
	}
}

// TestSpecRelease: property and spec are two places for one release, and one of them is enough.
func TestSpecRelease(t *testing.T) {
	const property = "its property olm.package says release 1 and spec.release of its ClusterServiceVersion says 2"
	for name, c := range map[string]struct{ stated, spec, want, problem string }{
		"none":                         {"", `{}`, "", ""},
		"the property alone":           {"1", `{}`, "1", ""},
		"the spec alone":               {"", `{"release":"2"}`, "2", ""},
		"both":                         {"2", `{"release":"2"}`, "2", ""},
		"two":                          {"1", `{"release":"2"}`, "", property},
		"empty in the spec":            {"1", `{"release":""}`, "1", ""},
		"a number":                     {"2", `{"release":2}`, "", "the release is not text"},
		"a leading zero":               {"", `{"release":"02"}`, "", `release "02" is not a release such as 2 or alpha.1`},
		"a name of another dot":        {"", `{"release":"1..2"}`, "", "is not a release"},
		"more than the schema accepts": {"", `{"release":"123456789.123456789.1"}`, "", "at most 20 are a release"},
	} {
		t.Run(name, func(t *testing.T) {
			var spec CSVSpec
			if err := json.Unmarshal([]byte(c.spec), &spec); err != nil {
				t.Fatal(err)
			}
			got, problem := spec.Release(c.stated)
			if got != c.want || (problem == "") != (c.problem == "") || !strings.Contains(problem, c.problem) {
				t.Errorf("release %q, problem %q", got, problem)
			}
		})
	}
	if got, problem := (*CSVSpec)(nil).Release("1"); got != "1" || problem != "" {
		t.Errorf("without a spec: release %q, problem %q", got, problem)
	}
}

// FuzzRelease: what is a release, and which of two is older, is as OLM's library and the definition of
// ClusterServiceVersions have it.
func FuzzRelease(f *testing.F) {
	for _, seed := range [][2]string{{"1", "2"}, {"2", "10"}, {"alpha.1", "alpha"}, {"01", "1"}, {"1..2", "-"},
		{"1-2.a", "1-10.a"}, {"a+b", "ä"}, {strings.Repeat("9", 20), strings.Repeat("9", 21)}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, written := range []string{a, b} {
			raw, err := json.Marshal(written)
			if err != nil {
				t.Fatal(err)
			}
			var decoded release.OperatorRelease
			oracle := written == "" || len(written) <= maxRelease && json.Unmarshal(raw, &decoded) == nil
			read, err := readRelease(raw)
			if (err == nil) != oracle || err == nil && read != written {
				t.Fatalf("%q is read as %q, error %v", written, read, err)
			}
			if err != nil || written == "" {
				continue
			}
			if decoded.String() != written {
				t.Errorf("%q has another form too, %q: two texts would be one release", written, decoded)
			}
		}
		was, errA := parseRelease(a)
		is, errB := parseRelease(b)
		if errA != nil || errB != nil || a == "" || b == "" {
			return
		}
		want := semver.Version{Pre: was}.LT(semver.Version{Pre: is})
		if olderRelease(was, is) != want || OlderVersion("1.2.3+"+a, "1.2.3+"+b) != want {
			t.Errorf("%q is older than %q: want %t", a, b, want)
		}
		if !OlderVersion("1.2.3", "1.2.3+"+a) || OlderVersion("1.2.3+"+a, "1.2.3") {
			t.Errorf("a version without a release is not the oldest: %q", a)
		}
	})
}
