package policy

import (
	"testing"

	"github.com/opgate/opgate/rules/dependency"
)

// TestStateOf checks what Policies are counted as, besides their states of compliance.
func TestStateOf(t *testing.T) {
	for want, p := range map[string]*storedPolicy{
		"Pending":  {Read: &dependency.Policy{State: dependency.Pending}},
		"Unknown":  {Read: &dependency.Policy{}},
		"Disabled": {Read: &dependency.Policy{Disabled: true, State: dependency.Compliant}},
	} {
		if got := stateOf(p); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := stateOf(&storedPolicy{}); got != stateUnknown {
		t.Errorf("a Policy that does not decode is %s", got)
	}
}
