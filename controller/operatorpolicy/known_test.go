package operatorpolicy

import (
	"fmt"
	"testing"

	"github.com/opgate/opgate/rules"
)

// TestKnownPolicies follows policies that are created, moved to other namespaces and deleted.
func TestKnownPolicies(t *testing.T) {
	policies := func(names ...string) (all []*rules.OperatorPolicy) {
		for _, name := range names {
			all = append(all, &rules.OperatorPolicy{Namespace: "policies", Name: name})
		}
		return all
	}
	var known knownPolicies
	for i, step := range []struct {
		namespace string
		policies  []*rules.OperatorPolicy
		gone      string
	}{
		{namespace: "shop", policies: policies("a", "b"), gone: "[]"},
		{namespace: "shop", policies: policies("a", "b"), gone: "[]"},
		{namespace: "shop", policies: policies("a"), gone: "[policies/b]"},
		{namespace: "bank", policies: policies("a"), gone: "[]"}, // moved, and reconciled there first
		{namespace: "shop", gone: "[]"},
		{namespace: "bank", gone: "[policies/a]"},
		{namespace: "bank", gone: "[]"},
		{namespace: "shop", policies: policies("a"), gone: "[]"},
		{namespace: "shop", gone: "[policies/a]"},
	} {
		if gone := fmt.Sprint(known.replace(step.namespace, step.policies)); gone != step.gone {
			t.Errorf("step %d: %s are gone, want %s", i, gone, step.gone)
		}
	}
	if len(known.in)+len(known.of) > 0 {
		t.Errorf("deleted policies are retained: %v, %v", known.in, known.of)
	}
}
