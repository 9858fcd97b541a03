package operatorpolicy

import (
	"fmt"
	"testing"
	"time"

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
		if gone := fmt.Sprint(known.replace(step.namespace, step.policies, time.Time{})); gone != step.gone {
			t.Errorf("step %d: %s are gone, want %s", i, gone, step.gone)
		}
	}
	if len(known.in)+len(known.of) > 0 {
		t.Errorf("deleted policies are retained: %v, %v", known.in, known.of)
	}
}

// TestO15PolicyCreatedAgain: a deleted policy counts for some seconds, and so does one that a process that has just begun does not know.
func TestO15PolicyCreatedAgain(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var known knownPolicies
	for _, step := range []struct {
		after    time.Duration
		policies []*rules.OperatorPolicy
		want     time.Duration
	}{
		{after: 0, want: settleDelay},
		{after: settleDelay - time.Second, want: time.Second},
		{after: settleDelay, want: 0},
		{after: time.Hour, policies: []*rules.OperatorPolicy{{Namespace: "policies", Name: "a"}}, want: 0},
		{after: time.Hour + time.Second, want: settleDelay},
		{after: time.Hour + 2*time.Second, want: settleDelay - time.Second},
		{after: 2 * time.Hour, want: 0},
	} {
		known.replace("shop", step.policies, start.Add(step.after))
		if got := known.settles("shop", start.Add(step.after)); got != step.want {
			t.Errorf("after %s: it settles in %s, want %s", step.after, got, step.want)
		}
	}
}
