package harness

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/e2e/cluster"
)

// HeldEvidence is in refusals of writes to what Opgate records.
const HeldEvidence = "writing what Opgate decides by is not allowed: allowed is " + cluster.OpgateUserName

// WantRecordsKept wants every ConfigMap and every Lease that a process of Opgate has written in its namespace to be kept
// from a cluster admin, and these to be at least so many.
func (e *Env) WantRecordsKept(t testing.TB, least int) {
	t.Helper()
	found := 0
	for _, kind := range []string{"ConfigMap", "Lease"} {
		objects := e.Clients[cluster.Admin].Resource(Resources[kind]).Namespace(cluster.OpgateNamespace)
		list, err := objects.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			if !slices.ContainsFunc(u.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
				return strings.HasPrefix(f.Manager, "opgate") // the program
			}) {
				continue
			}
			found++
			_, err := objects.Patch(t.Context(), u.GetName(), types.MergePatchType,
				[]byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil || !strings.Contains(err.Error(), HeldEvidence) {
				t.Errorf("%s %s: %v, want it kept: is its name in package kept?", kind, u.GetName(), err)
			}
		}
	}
	if found < least {
		t.Errorf("Opgate has written %d, want %d at least", found, least)
	}
}
