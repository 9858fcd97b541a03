package watches

import (
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/rules/dependency"
)

func named(name string) Target {
	return Target{Ref: dependency.Ref{Group: "example.com", Kind: "Widget", Namespace: "shop", Name: name}}
}

func TestDifference(t *testing.T) {
	versioned, template := named("a"), named("a")
	versioned.Version, template.Template = "v1", true
	tests := map[string]struct{ had, targets, added, gone []Target }{
		"the first": {nil, []Target{named("a"), named("b")},
			[]Target{named("a"), named("b")}, nil},
		"the same": {[]Target{named("a"), named("b")}, []Target{named("b"), named("a")},
			nil, nil},
		"named twice": {nil, []Target{named("a"), named("a")}, []Target{named("a")}, nil},
		"none any more": {[]Target{named("a"), named("b")}, nil, nil,
			[]Target{named("a"), named("b")}},
		"some stay": {[]Target{named("a"), named("b")}, []Target{named("b"), named("c")},
			[]Target{named("c")}, []Target{named("a")}},
		"in another version": {[]Target{named("a")}, []Target{versioned}, []Target{versioned},
			[]Target{named("a")}},
		"a template's object is not waited for": {[]Target{named("a")}, []Target{named("a"), template},
			[]Target{template}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			had := map[Target]*target{}
			for _, h := range test.had {
				had[h] = &target{Target: h}
			}
			added, gone := difference(had, test.targets)
			slices.SortFunc(gone, func(a, b Target) int { return strings.Compare(a.Name, b.Name) })
			if !slices.Equal(added, test.added) || !slices.Equal(gone, test.gone) {
				t.Errorf("added %v, gone %v; want %v, %v", added, gone, test.added, test.gone)
			}
		})
	}
}

func TestNotServed(t *testing.T) {
	wanted := named("a")
	wanted.Version = "v3"
	for want, versions := range map[string][]string{
		"Widget.example.com is not served in v3, served is v1":      {"v1"},
		"Widget.example.com is not served in v3, served are v2, v1": {"v2", "v1"},
	} {
		if got := notServed(wanted, versions); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
