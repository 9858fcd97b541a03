package operatorpolicy

import (
	"testing"
	"time"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/snapshot"
)

// TestRemovalsWait: a plan that OLM makes again after it was deleted stays for longer each time, an hour at most. One
// that could not be deleted does not.
func TestRemovalsWait(t *testing.T) {
	var m removal
	plan := &olm.InstallPlan{}
	plan.Metadata.Namespace, plan.Spec.CSVNames = "shop", []string{"etcd.v0.9.4"}
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for range 2 { // deleting it fails
		if got := m.wait(&snapshot.Snapshot{}, plan, now); got != 0 {
			t.Errorf("it stays for %s before it was deleted", got)
		}
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		m.done(plan, now)
		if got := m.wait(&snapshot.Snapshot{}, plan, now); got != want*time.Minute {
			t.Errorf("it stays for %s, want %s", got, want*time.Minute)
		}
		now = now.Add(want * time.Minute)
		if got := m.wait(&snapshot.Snapshot{}, plan, now); got != 0 {
			t.Errorf("after %s it stays for %s more", want*time.Minute, got)
		}
	}
	plan.Spec.CSVNames = []string{"etcd.v0.9.5"}
	if got := m.wait(&snapshot.Snapshot{}, plan, now); got != 0 {
		t.Errorf("another plan stays for %s", got)
	}
}
