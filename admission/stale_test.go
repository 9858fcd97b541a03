package admission

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/opgate/opgate/snapshot"
)

// TestG1StaleIsHeld: every review is held while a kind is stale, also of a write that would be allowed.
func TestG1StaleIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := named(t, "plan-allowed")
		existing := slices.Concat(s.Cluster, s.Policies)
		store := storeOf(t, existing...)
		gate := newGate(t, store, overrideBy{})
		old, object := written(t, s, existing)
		if got := send(t, gate, s.User, false, old, object); !got.allowed {
			t.Fatalf("refused: %s", got.message)
		}
		if store.Wait(t.Context(), snapshot.Subscriptions, "", func(*snapshot.Snapshot) bool { return false }) == nil {
			t.Fatal("a write that is not shown was shown")
		}
		const why = "opgate is not up to date (gate/stale): its watch of subscriptions shows no progress; try again in a few seconds"
		if got := send(t, gate, s.User, false, old, object); got.allowed || !strings.Contains(got.message, why) {
			t.Errorf("allowed is %t: %s\nwant %s", got.allowed, got.message, why)
		}
	})
}
