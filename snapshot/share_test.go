package snapshot

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// TestShare checks that a decoded status keeps its contents, and that equal texts of two policies are one in memory.
func TestShare(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC() // ends a cycle that has begun: one forgets shared texts that strings alone refer to
	decode := func(name string) *policyv1beta2.OperatorPolicy {
		o := read(OperatorPolicies, fmt.Sprintf(`{"apiVersion":"policy.open-cluster-management.io/v1beta2","kind":"OperatorPolicy",
			"metadata":{"name":%q,"namespace":"policies"},
			"spec":{"remediationAction":"inform","severity":"low","complianceType":"musthave","upgradeApproval":"None","subscription":{"name":"etcd","namespace":"shop"}},
			"status":{"compliant":"Compliant","conditions":[{"type":"Compliant","status":"True","reason":"Compliant","message":"all is well","lastTransitionTime":null}],
				"relatedObjects":[{"object":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}},"compliant":"Compliant","reason":"Resource found"}],
				"history":[{"lastTimestamp":"2026-11-22T10:00:00.000000Z","message":"Compliant; all is well"}]}}`, name))
		return o.value.(*storedPolicy).object
	}
	a, b := decode("a"), decode("b")
	if len(a.Status.Conditions) != 1 || a.Status.Conditions[0].Message != "all is well" ||
		len(a.Status.RelatedObjects) != 1 || len(a.Status.History) != 1 {
		t.Fatalf("the status lost something: %+v", a.Status)
	}
	if diff := cmp.Diff(a.Status, b.Status); diff != "" {
		t.Fatalf("equal statuses differ: %s", diff)
	}
	for name, texts := range map[string][2]string{
		"message of a condition": {a.Status.Conditions[0].Message, b.Status.Conditions[0].Message},
		"reason of an object":    {a.Status.RelatedObjects[0].Reason, b.Status.RelatedObjects[0].Reason},
		"message of the history": {a.Status.History[0].Message, b.Status.History[0].Message},
	} {
		if unsafe.StringData(texts[0]) != unsafe.StringData(texts[1]) {
			t.Errorf("%s: %q is in memory twice", name, texts[0])
		}
	}
	if got := cap(a.Status.Conditions); got != 1 {
		t.Errorf("one condition takes the memory of %d", got)
	}
}
