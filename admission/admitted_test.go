package admission

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/snapshot"
)

// storedPolicy returns the OperatorPolicy of the governed namespace as the API server has stored it.
func storedPolicy(t *testing.T, uid types.UID, generation int64) *unstructured.Unstructured {
	t.Helper()
	policy := governed(t).Policies[0].DeepCopy()
	policy.SetUID(uid)
	policy.SetGeneration(generation)
	return policy
}

// TestG1Admitted wants a write that was admitted to be waited for until the snapshot shows it or a later one, for what
// it concerns, and for a second at most.
func TestG1Admitted(t *testing.T) {
	written := storedPolicy(t, "1", 2)
	concerns, _, _ := unstructured.NestedString(written.Object, "spec", "subscription", "namespace")
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		stored    []*unstructured.Unstructured
		namespace string
		after     time.Duration
		missing   bool
	}{
		"not stored yet":        {namespace: concerns, missing: true},
		"for another namespace": {namespace: concerns + "-2"},
		"stored":                {namespace: concerns, stored: []*unstructured.Unstructured{storedPolicy(t, "1", 2)}},
		"edited since":          {namespace: concerns, stored: []*unstructured.Unstructured{storedPolicy(t, "1", 3)}},
		"an earlier generation": {namespace: concerns, stored: []*unstructured.Unstructured{storedPolicy(t, "1", 1)},
			missing: true},
		"another of its name": {namespace: concerns, stored: []*unstructured.Unstructured{storedPolicy(t, "2", 3)},
			missing: true},
		"just within the second": {namespace: concerns, after: time.Second, missing: true},
		"never stored, given up": {namespace: concerns, after: time.Second + 1},
		"deleted long ago":       {namespace: concerns, after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			var a admitted
			a.add(snapshot.OperatorPolicies, snapshot.InNamespace(concerns), written, noon)
			missing := a.missing(storeOf(t, test.stored...).Load(), test.namespace, noon.Add(test.after))
			if got := len(missing) > 0; got != test.missing {
				t.Errorf("it is waited for: %t, want %t", got, test.missing)
			}
		})
	}

	t.Run("a Constraint concerns every namespace", func(t *testing.T) {
		var a admitted
		a.add(snapshot.Constraints, snapshot.InCluster(), written, noon)
		if len(a.missing(storeOf(t).Load(), "anywhere", noon)) == 0 {
			t.Error("it is not waited for")
		}
	})
}

// TestG1NotStored admits a policy that is never stored, such as one that another webhook refuses: what it concerns is
// judged without it, a second later.
func TestG1NotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, storeOf(t), overrideBy{})
		policy := storedPolicy(t, "1", 1)
		if got := send(t, gate, "admin", false, nil, policy); !got.allowed {
			t.Fatalf("the policy was refused: %+v", got)
		}
		concerns, _, _ := unstructured.NestedString(policy.Object, "spec", "subscription", "namespace")
		subscription := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
			"metadata": map[string]any{"name": "etcd", "namespace": concerns},
			"spec": map[string]any{"name": "etcd", "channel": "anything", "source": "any",
				"sourceNamespace": "olm"},
		}}
		start := time.Now()
		if got := send(t, gate, "admin", false, nil, subscription); !got.allowed {
			t.Errorf("the Subscription was refused: %+v", got)
		}
		if took := time.Since(start); took != admittedWait {
			t.Errorf("the answer took %s, want %s: the policy is waited for", took, admittedWait)
		}
		start = time.Now()
		send(t, gate, "admin", false, nil, subscription)
		if took := time.Since(start); took != 0 {
			t.Errorf("the next answer took %s: the policy is still waited for", took)
		}
	})
}

// foreignSubscription is of a catalog that the policy does not allow.
func foreignSubscription(namespace string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
		"metadata": map[string]any{"name": "etcd", "namespace": namespace},
		"spec":     map[string]any{"name": "etcd", "channel": "anything", "source": "any", "sourceNamespace": "olm"},
	}}
}

// TestP5Waits: forged reviews are not remembered, and reviews that are not authenticated do not wait. Those of the API
// server, for writes that are never stored, delay a namespace once, and then not for a second (threat G34).
func TestP5Waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, storeOf(t), overrideBy{})
		policy := storedPolicy(t, "1", 1)
		concerns, _, _ := unstructured.NestedString(policy.Object, "spec", "subscription", "namespace")
		wait := func(when string, want time.Duration) {
			t.Helper()
			begun := time.Now()
			send(t, gate, "admin", false, nil, foreignSubscription(concerns))
			if took := time.Since(begun); took != want {
				t.Errorf("%s, a review takes %s, want %s", when, took, want)
			}
		}
		known := gate.Authenticated
		gate.Authenticated = func(*http.Request) bool { return false }
		send(t, gate, "admin", false, nil, policy)
		gate.Authenticated = known
		wait("after a forged review", 0)

		flood := func() {
			for i := range 5 {
				policy.SetName(fmt.Sprintf("never-stored-%d", i))
				send(t, gate, "admin", false, nil, policy)
			}
		}
		flood()
		gate.Authenticated = func(*http.Request) bool { return false }
		wait("not authenticated", 0)
		gate.Authenticated = known
		wait("after five writes", admittedWait)
		for range 9 {
			flood()
			wait("after a wait that was in vain", 0)
			time.Sleep(admittedWait / 10)
		}
		flood()
		time.Sleep(admittedWait / 10)
		flood()
		wait("a second later", admittedWait)
		if n := len(gate.admitted.writes); n > 5 {
			t.Errorf("%d writes of 5 objects are remembered", n)
		}
	})
}

// TestP5Bound bounds the writes and the namespaces that are remembered.
func TestP5Bound(t *testing.T) {
	var a admitted
	now := time.Now()
	policy := storedPolicy(t, "1", 1)
	for i := range 3 * maxAdmitted {
		policy.SetName(fmt.Sprint(i))
		a.add(snapshot.OperatorPolicies, snapshot.InNamespace("shop"), policy, now)
	}
	if len(a.writes) != maxAdmitted {
		t.Errorf("%d writes are remembered, want %d", len(a.writes), maxAdmitted)
	}
	for i := range 100 {
		now = now.Add(admittedWait)
		a.fail(fmt.Sprint(i), now)
	}
	if len(a.failed) != 1 {
		t.Errorf("%d namespaces are remembered", len(a.failed))
	}
}

// TestP6Conflict creates a policy that exists, which the API server admits before it answers 409: nothing waits for it,
// whatever namespace it names. An update is waited for, and so is a policy that was not there (threat G34).
func TestP6Conflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := storedPolicy(t, "1", 1)
		gate := newGate(t, storeOf(t, stored), overrideBy{})
		again := stored.DeepCopy()
		again.SetUID("2")
		if err := unstructured.SetNestedField(again.Object, "victim", "spec", "subscription", "namespace"); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			name   string
			old    *unstructured.Unstructured
			rename string
			want   time.Duration
		}{
			{name: "attack: the creation of one that exists"},
			{name: "an update of one that exists", old: stored, want: admittedWait},
			{name: "the creation of another one", rename: "another", want: admittedWait},
		} {
			written := again.DeepCopy()
			if test.rename != "" {
				written.SetName(test.rename)
			}
			if got := send(t, gate, "admin", false, test.old, written); !got.allowed {
				t.Fatalf("%s: %+v", test.name, got)
			}
			begun := time.Now()
			send(t, gate, "admin", false, nil, foreignSubscription("victim"))
			if took := time.Since(begun); took != test.want {
				t.Errorf("%s: a review takes %s, want %s", test.name, took, test.want)
			}
			time.Sleep(2 * admittedWait)
		}
	})
}

// TestG1Apply applies policies and then a Subscription, as kubectl does with the files of a directory: all that are not
// shown yet are waited for, also while another namespace waits in vain.
func TestG1Apply(t *testing.T) {
	var a admitted
	now := time.Now()
	first, second := storedPolicy(t, "1", 1), storedPolicy(t, "2", 1)
	second.SetName("second")
	for _, policy := range []*unstructured.Unstructured{first, second} {
		a.add(snapshot.OperatorPolicies, snapshot.InNamespace("shop"), policy, now)
	}
	a.fail("victim", now)
	if missing := a.missing(storeOf(t, first).Load(), "shop", now); len(missing) == 0 {
		t.Error("policies are not waited for")
	}
	concerns, _, _ := unstructured.NestedString(first.Object, "spec", "subscription", "namespace")
	if concerns != "shop" {
		t.Fatalf("the policy concerns %s", concerns)
	}
	if missing := a.missing(storeOf(t, first, second).Load(), "shop", now); len(missing) > 0 {
		t.Errorf("what is shown is waited for: %+v", missing)
	}
}
