package operatorpolicy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/operatorpolicy"
)

// TestKnownPolicies follows policies that are created, moved to other namespaces and deleted.
func TestKnownPolicies(t *testing.T) {
	policies := func(names ...string) (all []*operatorpolicy.Policy) {
		for _, name := range names {
			all = append(all, &operatorpolicy.Policy{Namespace: "policies", Name: name})
		}
		return all
	}
	var s loopState
	for i, step := range []struct {
		namespace string
		policies  []*operatorpolicy.Policy
		deleted   string
	}{
		{namespace: "shop", policies: policies("a", "b"), deleted: "[]"},
		{namespace: "shop", policies: policies("a", "b"), deleted: "[]"},
		{namespace: "shop", policies: policies("a"), deleted: "[policies/b]"},
		{namespace: "bank", policies: policies("a"), deleted: "[]"}, // moved, and reconciled there first
		{namespace: "shop", deleted: "[]"},
		{namespace: "bank", deleted: "[policies/a]"},
		{namespace: "bank", deleted: "[]"},
		{namespace: "shop", policies: policies("a"), deleted: "[]"},
		{namespace: "shop", deleted: "[policies/a]"},
	} {
		n := s.namespace(step.namespace)
		before := len(n.deleted)
		s.replace(step.namespace, step.policies, time.Time{})
		if deleted := fmt.Sprint(n.deleted[before:]); deleted != step.deleted {
			t.Errorf("step %d: %s are deleted, want %s", i, deleted, step.deleted)
		}
	}
	for _, namespace := range []string{"shop", "bank"} {
		s.forget(namespace, time.Time{}.Add(settleDelay), byNothing)
	}
	if len(s.evaluated)+len(s.namespaces) > 0 {
		t.Errorf("deleted policies are retained: %v, %v", s.evaluated, s.namespaces)
	}
}

func byNothing(types.NamespacedName) string { return "" }

// TestO15PolicyCreatedAgain: a deleted policy counts for some seconds, and so does one that a process that has just
// begun does not know.
func TestO15PolicyCreatedAgain(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var s loopState
	for _, step := range []struct {
		after    time.Duration
		policies []*operatorpolicy.Policy
		want     time.Duration
	}{
		{after: 0, want: settleDelay},
		{after: settleDelay - time.Second, want: time.Second},
		{after: settleDelay, want: 0},
		{after: time.Hour, policies: []*operatorpolicy.Policy{{Namespace: "policies", Name: "a"}}, want: 0},
		{after: time.Hour + time.Second, want: settleDelay},
		{after: time.Hour + 2*time.Second, want: settleDelay - time.Second},
		{after: 2 * time.Hour, want: 0},
	} {
		s.replace("shop", step.policies, start.Add(step.after))
		if got, _ := s.deletionDelay("shop", start.Add(step.after), byNothing); got != step.want {
			t.Errorf("after %s: it deletionDelay in %s, want %s", step.after, got, step.want)
		}
	}
}

// TestO15PolicyOfAPolicy: what a Policy creates again is waited for, however long that takes, until it exists or the
// Policy does not want it any more.
func TestO15PolicyOfAPolicy(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	by := "Policy policies/app"
	var s loopState
	evaluate := func(after time.Duration, policies ...*operatorpolicy.Policy) (done bool, why string) {
		at = at.Add(after)
		s.replace("shop", policies, at)
		left, why := s.deletionDelay("shop", at, func(types.NamespacedName) string { return by })
		return left == 0, why
	}
	a := &operatorpolicy.Policy{Namespace: "policies", Name: "a"}
	evaluate(0, a)
	if done, _ := evaluate(time.Hour, a); !done {
		t.Error("a policy that is there is waited for")
	}
	for range 2 {
		if done, why := evaluate(time.Hour); done ||
			why != "OperatorPolicy policies/a was deleted, and Policy policies/app creates it again" {
			t.Errorf("its policies have settled: %t, %q", done, why)
		}
		if after := s.forget("shop", at, func(types.NamespacedName) string { return by }); after != settleDelay {
			t.Errorf("it is forgotten in %s", after)
		}
	}
	evaluate(time.Hour, a)
	if done, _ := evaluate(time.Hour, a); !done {
		t.Error("a policy that is there again is waited for")
	}
	evaluate(time.Hour)
	by = ""
	if done, _ := evaluate(time.Hour); !done {
		t.Error("a policy is waited for that nothing creates")
	}
}

// TestForget: a namespace in which nothing is approved is forgotten once its policies have settled, and nothing else of
// it is kept until then.
func TestForget(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var s loopState
	s.replace("shop", []*operatorpolicy.Policy{{Namespace: "policies", Name: "a"}}, start)
	s.namespace("shop").missing = "etcd"
	s.replace("shop", nil, start.Add(time.Minute))
	if after := s.forget("shop", start.Add(time.Minute+time.Second), byNothing); after != settleDelay-time.Second ||
		s.namespace("shop").missing != "" {
		t.Errorf("it is forgotten in %s, and is %+v", after, s.namespace("shop"))
	}
	if left, _ := s.deletionDelay("shop", start.Add(time.Minute+time.Second), byNothing); left != settleDelay-time.Second {
		t.Errorf("it deletionDelay in %s", left)
	}
	if after := s.forget("shop", start.Add(time.Minute+settleDelay), byNothing); after != 0 || len(s.namespaces) != 0 {
		t.Errorf("it is forgotten in %s, and %v is kept", after, s.namespaces)
	}
}

func TestDependents(t *testing.T) {
	var s loopState
	s.depends("shop", "operators")
	s.depends("bakery", "operators")
	s.depends("shop", "operators")
	s.depends("lab", "elsewhere")
	taken := s.takeDependents("operators")
	slices.Sort(taken)
	if !slices.Equal(taken, []string{"bakery", "shop"}) {
		t.Errorf("took %v", taken)
	}
	if again := s.takeDependents("operators"); len(again) != 0 {
		t.Errorf("took %v again", again)
	}
	if taken := s.takeDependents("elsewhere"); !slices.Equal(taken, []string{"lab"}) {
		t.Errorf("took %v", taken)
	}
}
