package state

import (
	"testing"
)

// TestListedVersions: a name is listed as it is written, and one with a digest for its contents only.
func TestListedVersions(t *testing.T) {
	l := newVersionList([]string{"b", "c@sha256:1, a", "d,d@sha256:2"})
	for name, want := range map[string]bool{"a": true, "b": true, "c": false, "d": true, "e": false, "": false,
		"c@sha256:1": false} {
		if got := l.Lists(name); got != want {
			t.Errorf("%q is listed: %t, want %t", name, got, want)
		}
	}
	if !l.Binds("c") || l.Binds("d") || l.Binds("a") {
		t.Errorf("the digests are %v", l.digests)
	}
}
