package operatorpolicy

import (
	"testing"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/snapshot"
)

// TestRemovalsThatFail: a plan that could not be deleted is not said to be made again.
func TestRemovalsThatFail(t *testing.T) {
	var m removal
	plan := &olm.InstallPlan{}
	plan.Metadata.Namespace, plan.Spec.CSVNames = "shop", []string{"etcd.v0.9.4"}
	if m.before(&snapshot.Snapshot{}, plan) {
		t.Error("it was deleted before the first time")
	}
	m.failed()
	if m.before(&snapshot.Snapshot{}, plan) {
		t.Error("it counts as deleted although that failed")
	}
	if !m.before(&snapshot.Snapshot{}, plan) {
		t.Error("it does not count as deleted")
	}
}
