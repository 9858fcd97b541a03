package admission

import (
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

// TestG1Admitted wants a write that was admitted to be waited for until the snapshot shows it or a later one, for what it concerns, and
// for a second at most.
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
		"not stored yet":         {namespace: concerns, missing: true},
		"for another namespace":  {namespace: concerns + "-2"},
		"stored":                 {namespace: concerns, stored: []*unstructured.Unstructured{storedPolicy(t, "1", 2)}},
		"edited since":           {namespace: concerns, stored: []*unstructured.Unstructured{storedPolicy(t, "1", 3)}},
		"an earlier generation":  {namespace: concerns, stored: []*unstructured.Unstructured{storedPolicy(t, "1", 1)}, missing: true},
		"another of its name":    {namespace: concerns, stored: []*unstructured.Unstructured{storedPolicy(t, "2", 3)}, missing: true},
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

// TestG1NotStored admits a policy that is never stored, such as one that another webhook refuses: what it concerns is judged without it,
// a second later.
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
			"spec":     map[string]any{"name": "etcd", "channel": "anything", "source": "any", "sourceNamespace": "olm"},
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
