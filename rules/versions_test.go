package rules

import (
	"slices"
	"testing"
)

func TestSplitVersions(t *testing.T) {
	for _, c := range []struct{ entries, want []string }{
		{nil, nil},
		{[]string{" bar ", "a,b", ", ,c,"}, []string{"bar", "a", "b", "c"}}, // the existing controller's own example
		{[]string{"a", "a", "b,a"}, []string{"a", "b"}},
		{[]string{"\ta\n"}, []string{"a"}},
		{[]string{"", " , "}, nil},
	} {
		if got := SplitVersions(c.entries); !slices.Equal(got, c.want) {
			t.Errorf("%q is read as %q, want %q", c.entries, got, c.want)
		}
	}
}
