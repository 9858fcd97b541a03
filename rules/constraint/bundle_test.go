package constraint

import (
	"strings"
	"testing"

	"github.com/opgate/opgate/olm"
)

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
			pairs = append(pairs, olm.TypeMaxOpenShift, v)
		}
		got, problem := (&Bundle{Bundle: olm.Bundle{Properties: props(pairs...)}}).MaxOpenShift()
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
		if got := (&Bundle{}).notKnown(a); got != want {
			t.Error(got)
		}
	}
}
