package rules

import (
	"testing"

	"github.com/opgate/opgate/rules/facts"
)

// TestTooNewFor compares the first two numbers, the first one first.
func TestTooNewFor(t *testing.T) {
	for openshift, want := range map[string]bool{"4.18.9": false, "4.19.3": false, "4.20.0": true, "5.1.0": true,
		"": false} {
		if what, _ := (&facts.Cluster{OpenShift: openshift}).TooNewFor("4.19"); (what != "") != want {
			t.Errorf("on %q: %q", openshift, what)
		}
	}
	if what, _ := (&facts.Cluster{OpenShift: "5.0.2"}).TooNewFor("4.23"); what != "" {
		t.Errorf("4.23 and 5.0 are one release: %q", what)
	}
}
