package rules

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/opgate/opgate/olm"
)

// TestBundlesParsedOnce checks that the bundle properties of a prepared plan, and of one whose consent is checked, are
// not parsed again, and that those of a plan that OLM is done with are not kept in memory.
func TestBundlesParsedOnce(t *testing.T) {
	planOf := func(phase string) *olm.InstallPlan {
		plan := pendingPlan("etcd 0.9.4")
		plan.Status.Phase = phase
		var kinds strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&kinds, `,{"type":"olm.gvk","value":{"group":"g%d","version":"v1","kind":"K"}}`, i)
		}
		lookup := &plan.Status.BundleLookups[0]
		lookup.Properties = strings.TrimSuffix(lookup.Properties, "]}") + kinds.String() + "]}"
		return plan
	}
	parsed := planOf(olm.PhaseRequiresApproval)
	want := bundlesOf(parsed, nil)
	for _, c := range []struct {
		name    string
		phase   string
		prepare func(*olm.InstallPlan)
		kept    bool
	}{
		{name: "stored", phase: olm.PhaseRequiresApproval, prepare: PreparePlan, kept: true},
		{name: "consent", phase: olm.PhaseRequiresApproval, kept: true, prepare: func(p *olm.InstallPlan) {
			(&PlanUpdateInput{Old: p}).ConsentNeeds()
		}},
		{name: "running", phase: olm.PhaseInstalling, prepare: PreparePlan, kept: true},
		{name: "complete", phase: olm.PhaseComplete, prepare: PreparePlan},
		{name: "failed", phase: olm.PhaseFailed, prepare: PreparePlan},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := planOf(c.phase)
			c.prepare(plan)
			got := bundlesOf(plan, nil)
			if !reflect.DeepEqual(got[0].properties, want[0].properties) ||
				!reflect.DeepEqual(got[0].provides, want[0].provides) {
				t.Error("other properties than those of a plan that is not prepared")
			}
			allocations := testing.AllocsPerRun(3, func() { bundlesOf(plan, nil) })
			if again := allocations > 1000; again == c.kept {
				t.Errorf("%v allocations", allocations)
			}
		})
	}
}
