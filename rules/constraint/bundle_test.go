package constraint

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseBundleProperties(t *testing.T) {
	for _, c := range []struct {
		wrapped string
		want    []Property
		fails   bool
	}{
		{wrapped: ""},
		{wrapped: "{}", want: []Property{}},
		{wrapped: `{"properties":null}`, want: []Property{}},
		{wrapped: `{"properties":[{"type":"a","value":{"b": 1}},{"type":"c"}]}`, want: props("a", `{"b": 1}`, "c", "null")},
		{wrapped: `{"Properties":[{"TYPE":"a","value":1}]}`, want: props("a", "1")}, // as OLM reads it
		{wrapped: `{"properties":[{"type":"a","value":1}],"properties":[{"type":"b","value":2}]}`, want: props("b", "2")},
		{wrapped: `{"properties":{}}`, fails: true},
		{wrapped: `{"properties":[{"type":1}]}`, fails: true},
		{wrapped: `[`, fails: true},
		{wrapped: strings.Repeat("[", 20_000), fails: true},
	} {
		got, err := ParseBundleProperties(c.wrapped)
		if (err != nil) != c.fails {
			t.Errorf("%.80s: %v", c.wrapped, err)
		} else if diff := cmp.Diff(c.want, got); diff != "" && !c.fails {
			t.Errorf("%.80s: %s", c.wrapped, diff)
		}
	}
}

func TestMaxOpenShift(t *testing.T) {
	for _, c := range []struct {
		values        []string
		want, problem string
	}{
		{},
		{values: []string{`"4.19"`}, want: "4.19"},
		{values: []string{`4.19`}, want: "4.19"},
		{values: []string{`"v4.9"`}, want: "4.9"},
		{values: []string{`"4.19.0"`}, want: "4.19"},
		{values: []string{`"4"`}, want: "4.0"},
		{values: []string{`"\"4.19\""`}, problem: "is not a version"}, // OLM trims the quotes, but not the backslashes
		{values: []string{`""4.19""`}, want: "4.19"},
		{values: []string{`"4.19.1"`}, problem: "more than MAJOR.MINOR"},
		{values: []string{`"4.19-rc.1"`}, problem: "is not a version"},
		{values: []string{`""`}, problem: "is empty"},
		{values: []string{`null`}, problem: "is not a version"},
		{values: []string{`{"version":"4.19"}`}, problem: "is not a version"},
		{values: []string{`"4.19"`, `"4.19"`}, problem: "more than once"},
	} {
		var pairs []string
		for _, v := range c.values {
			pairs = append(pairs, typeMaxOpenShift, v)
		}
		got, problem := (&Bundle{Properties: props(pairs...)}).MaxOpenShift()
		if got != c.want || (c.problem == "") != (problem == "") || !strings.Contains(problem, c.problem) {
			t.Errorf("%s: %q, %q", c.values, got, problem)
		}
	}
}

func TestNotKnown(t *testing.T) {
	for a, want := range map[Attributes]string{
		0:                              "something that it depends on is not known",
		Package:                        "the package is not known",
		NamespaceLabels:                "the labels of the namespace are not known",
		CSV | CatalogSource:            "the CSV name and the catalog are not known",
		CSV | Version | ClusterVersion: "the CSV name, the version and the facts about the cluster are not known",
	} {
		if got := notKnown(a); got != want {
			t.Error(got)
		}
	}
}
