package rules

import (
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// TestListedVersions: a name is listed as it is written, and one with a digest for its contents only.
func TestListedVersions(t *testing.T) {
	op := &policyv1beta2.OperatorPolicy{}
	op.Spec.Versions = []string{"b", "c@sha256:1, a", "d,d@sha256:2"}
	l := &NewOperatorPolicy(op).Versions
	for name, want := range map[string]bool{"a": true, "b": true, "c": false, "d": true, "e": false, "": false,
		"c@sha256:1": false} {
		if got := l.Lists(name); got != want {
			t.Errorf("%q is listed: %t, want %t", name, got, want)
		}
	}
	if !l.Binds("c") || l.Binds("d") || l.Binds("a") {
		t.Error("other names have digests")
	}
}
