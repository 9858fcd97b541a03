package admission

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/rules"
)

// TestIdentity: only Opgate's own user may write virtual operators; no user may while that user is not known.
func TestIdentity(t *testing.T) {
	const opgate = "system:serviceaccount:opgate-system:opgate"
	csv := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "operators.coreos.com/v1alpha1",
		"kind": "ClusterServiceVersion",
		"metadata": map[string]any{"name": "opgate-properties-hardware", "namespace": "shop",
			"labels": map[string]any{rules.VirtualOperatorLabel: "hardware"}}}}
	for name, c := range map[string]struct {
		user, known string
		want        bool
	}{
		"Opgate":                           {opgate, opgate, true},
		"an admin":                         {"admin", opgate, false},
		"Opgate, before it knows its name": {opgate, "", false},
		"nobody, before that":              {"", "", false},
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
