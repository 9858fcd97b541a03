package admission

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/internal/metakey"
)

// TestIdentity: only Opgate's own user may write virtual operators; no user may while that user is not known.
func TestIdentity(t *testing.T) {
	const opgate = "system:serviceaccount:opgate-system:opgate"
	csv := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "operators.coreos.com/v1alpha1",
		"kind": "ClusterServiceVersion",
		"metadata": map[string]any{"name": "opgate-properties-hardware", "namespace": "shop",
			"labels": map[string]any{metakey.VirtualOperator: "hardware"}}}}
	for name, c := range map[string]struct {
		user, known string
		want        bool
	}{
		"Opgate":                           {opgate, opgate, true},
		"an admin":                         {"admin", opgate, false},
		"Opgate, before it knows its name": {opgate, "", false},
		"no user, before that":             {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			gate := newGate(t, storeOf(t), overrideBy{})
			gate.Identity = func() string { return c.known }
			if got := send(t, gate, c.user, false, nil, csv); got.allowed != c.want {
				t.Errorf("allowed is %v, want %v: %s", got.allowed, c.want, got.message)
			}
		})
	}
}

// TestDeletionUnbacked: the author of a policy or a Constraint that restricts deletions is warned where nothing is
// refused.
func TestDeletionUnbacked(t *testing.T) {
	const why = "--backstop is off here"
	gate := New(optionsOf(Options{Store: storeOf(t), Authenticated: byAPIServer, Unbacked: why}))
	for _, text := range []string{`{"apiVersion":"operators.coreos.com/v1","kind":"Constraint","metadata":{"name":"keep"},
		"spec":{"deletion":{"action":"Deny"}}}`,
		`{"apiVersion":"policy.open-cluster-management.io/v1beta2","kind":"OperatorPolicy",
		"metadata":{"name":"etcd","namespace":"shop"},"spec":{"remediationAction":"enforce","complianceType":"musthave",
		"upgradeApproval":"Automatic","deletion":"Deny","subscription":{"name":"etcd","namespace":"shop"}}}`} {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		got := send(t, gate, "admin", false, nil, u)
		if !got.allowed || !strings.Contains(strings.Join(got.warnings, "\n"), "Deny refuses no deletion") ||
			!strings.Contains(strings.Join(got.warnings, "\n"), why) {
			t.Errorf("%s: %+v", u.GetKind(), got)
		}
	}
}
